package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/openmausbot/botbox/testbed/rig"
)

// reports are public bug reports and measured faults of other supervisors, with
// the tests that hold ours to the right behaviour. Each row is tried with the
// supervisor as PID 1 and as a child of something else; what is tried without
// one, alone, stands behind it.
var reports = []struct{ report, tests, alone string }{
	{"bubblewrap 198: a setuid bubblewrap and hidden processes", "TestBug_bubblewrap198_Setuid", "TestWhyThereIsNoBox"},
	{"bubblewrap 505: a masked /proc", "TestBug_bubblewrap505_MaskedProc", "TestMaskedProc"},
	{"golang/go 27505, chromedp 1566, moby 44215: the death signal of a thread", "TestBug_golang27505_ABoxOutlivesOthers", "TestBoxesOutliveThreads"},
	{"go-reaper 2, 11, coder 22866: stolen exit statuses", "TestOrphanStorm TestBug_uroot746_TheCommandEndsInAStorm", "TestExactStatusesInAStormOfOrphans"},
	{"u-root 746, 749: the same as PID 1", "TestOrphanStorm TestBug_uroot746_TheCommandEndsInAStorm", "TestExactStatusesInAStormOfOrphans"},
	{"cvmimage PR 232: a signal to 0, 1 or -1", "", "TestSignalHitsOurOwnOnly"},
	{"tini 141, PR 7: not PID 1, and orphans", "TestBug_tini141_supervisor936_Orphans", ""},
	{"tini PR 67: the subreaper's flag", "TestBug_tini141_supervisor936_Orphans", "TestHardeningStepsAndTheirSwitch"},
	{"statsd_exporter 133, golang/go 13484, runc PR 5189: a stop at any moment", "TestStopsAtRandomMoments", "TestStopAtAnyMomentIsNeverExit2 TestStopBeforeTheReexecStartsNothing"},
	{"dumb-init 136: stray signals at the start", "TestBug_dumbinit136_StraySignals", ""},
	{"dumb-init 191: grandchildren with a session of their own", "TestBug_dumbinit191_SessionsOfTheirOwn", "TestNothingSurvivesWhereWeAreNotPID1"},
	{"s6-overlay 320, 567, 73: lost exit statuses", "TestExitStatusIsTheCommands", ""},
	{"podman 18095, 8086: TSTP, TTIN, TTOU", "TestSignalsThatAreNoStop", ""},
	{"supervisor 936: an orphan's death", "TestBug_tini141_supervisor936_Orphans", ""},
	{"CVE-2022-24769, CVE-2022-29162: inheritable capabilities", "TestInheritedCapabilitiesAreCleared", ""},
	{"systemd 25961, 24516, 35993: the watchdog's environment", "TestServiceManagerHearsReadyAndStopping", "TestWorkerPosture"},
	{"systemd PR 10444: a closed log", "TestBug_systemd10444_ClosedStderr", ""},
	{"golang/go 44176, 33050, 22934: a FIFO without a peer", "TestASilentWorkerIsAbortedAndReplaced TestHostileFrames", ""},
	{"filelock PR 549, logrotate PR 607: planted FIFOs", "TestBug_filelock549_logrotate607_PlantedFIFOs TestBug_filelock549_TheWorkersFiles", ""},
	{"CVE-2026-27456, util-linux PR 4381: a folder on the way is exchanged", "TestRefusedStarts", "TestBug_CVE202627456_ExchangedFolders TestMakeFolder"},
	{"moby 44562, containerd 7442: AF_VSOCK", "TestBug_moby44562_containerd7442_Vsock", "TestBug_TheFilter TestFilterInARealBox TestForeignModeIsKilledInARealBox"},
	{"runc 2105, benchexec 841: a frozen box", "TestBug_runc2105_benchexec841_StoppedBox", ""},
	{"pelagos 459: a zombie is not alive", "TestBug_pelagos459_Zombies", ""},
	{"openssh PR 521: the user is changed on the way", "TestHostileMappersAreReplaced", "TestLeases TestWhoseNamespaceGetsAMap"},
	{"termux 20769: there is no such account", "TestRefusedStarts", ""},
}

// A row names tests that there are: one that is renamed takes its row along.
// And the tests of the second column try both places.
func TestEveryReportHasItsTests(t *testing.T) {
	there := map[string]string{}
	function := regexp.MustCompile(`(?ms)^func (Test\w+)\(.*?^}$`)
	err := filepath.WalkDir(rig.Root(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range function.FindAllStringSubmatch(string(text), -1) {
			there[found[1]] += found[0] // a name may stand in two packages
		}
		return err
	})
	if err != nil || len(there) < 100 {
		t.Fatalf("%d tests, %v", len(there), err)
	}
	for i, row := range reports {
		if row.tests == "" && row.alone == "" {
			t.Errorf("row %d, %s: no test", i+1, row.report)
		}
		for test := range strings.FieldsSeq(row.tests + " " + row.alone) {
			if there[test] == "" {
				t.Errorf("row %d, %s: there is no %s", i+1, row.report, test)
			}
		}
		for test := range strings.FieldsSeq(row.tests) {
			if !strings.Contains(there[test], "bothWays(") && !strings.Contains(there[test], "bothAtOnce(") {
				t.Errorf("row %d, %s: %s does not try both places", i+1, row.report, test)
			}
		}
	}
	if len(reports) != 25 {
		t.Errorf("%d rows", len(reports))
	}
}
