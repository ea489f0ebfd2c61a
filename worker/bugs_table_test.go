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

// reports are public bug reports and measured faults of other sandboxes that
// are about the box and its broker, with the tests that hold ours to the right
// behaviour.
var reports = []struct{ report, tests string }{
	// Mounts and files.
	{"CVE-2026-87766, Flatcar 2417: bubblewrap follows a planted link", "TestPlantedLinks TestPlantedDestinations TestExchangedFolders"},
	{"bubblewrap 801, flatpak 6835: a mended bubblewrap refuses destinations behind links", "TestRandomPlans"},
	{"CVE-2018-15664, CVE-2021-26910: a source is exchanged between check and use", "TestExchangedFolders TestExchangedWhileOpened"},
	{"claude-code 64182, greywall: a later mount hides an earlier one", "TestRandomPlans TestRenewalsByRename"},
	{"greywall: the links of a merged /usr are lost", "TestSplitAndMergedUsr"},
	{"paperclip 10684: a name is bound and linked", "TestSplitAndMergedUsr"},
	{"greywall 81, ai-jail 93, nix-bwrapper 23: resolv.conf is a dangling link", "TestBug_greywall81_aijail93_DanglingResolvConf"},
	{"ai-jail 81, 84: an engine in HOME is not found", "TestAnEngineInstalledInHome"},
	{"heym 394, reyn 2976, Codewhale 1267: nothing can be run from HOME and caches", "TestBug_heym394_reyn2976_ExecutableFolders"},
	{"claude-code 84681, 68587, nono 497, codex 33158: the start walks the work tree", "TestBug_claudecode84681_68587_LargeTrees"},
	{"claude-code 17258, 31078, 43825, codex 31599: litter in the work tree", "TestASpawnThatIsKilledHalfWay TestGitInABox TestGitFoldersOfEveryKind"},
	{"claude-code 93144: mount points below folders of others", "TestRandomPlans TestASpawnThatIsKilledHalfWay"},
	{"claude-code 50781, 50505: one optional file that is missing ends every command", "TestGitFoldersOfEveryKind TestProfiles"},
	{"claude-code 72748, fence 13: a folder where a file is expected", "TestGitFoldersOfEveryKind"},
	{"sandbox-runtime 221, codex 15725, 17079, 20716: a guarded place is a link", "TestGitFoldersOfEveryKind"},
	{"codex 19786, 27418, claude-code 64792, ai-jail 101: commits in a linked work tree", "TestGitInABox TestAWorkTreeThatLies"},
	{"claude-code-config 48, sandy 79, cplt 127: what a box wrote is run outside", "TestNothingOfOursRunsWhatABoxWrote TestGitInABox"},
	{"fence: a work folder in /tmp is hidden", "TestWhereABoxCanWrite"},
	{"greywall 55, firejail 796, sandbox-runtime 429: sockets by path", "TestFoldersThatHoldSockets TestRefusedPaths"},
	{"nsjail 71, bubblewrap 375: a tmpfs without an end", "TestBug_nsjail71_bubblewrap375_TmpfsSizes TestEveryTmpfsHasASize TestPrivateFoldersStopAtTheirSize"},
	{"CVE-2022-0492, nsjail 199: cgroups and /sys", "TestNobodyElsesFilesAreInABox"},

	// The host, and why there is no box.
	{"sandbox-runtime 74, claude-code 14719, codex 17337, ai-jail 34: AppArmor, in two wordings", "TestBubblewrapsWordsAreNotRead TestSetupAppArmor TestRemedy"},
	{"sandbox-runtime 429, claude-code 81799: the profile of a distribution takes what the first program in the box needs", "TestBug_sandboxruntime429_claudecode81799_EntryNeedsNoCapability"},
	{"Reasonix 8370: not found, although it is there", "TestABubblewrapThatMayNotBeRun TestWhyThereIsNoBox"},
	{"sandbox-runtime 180: root skips the user namespace", "TestRootWithoutCapabilities TestOptionsGolden"},
	{"sandbox-runtime README: root without CAP_SETFCAP", "TestRootWithoutCapabilities"},
	{"sandbox-runtime 214, bubblewrap 505, 284: masked /proc", "TestMaskedProc TestDoctorNamesTheMask"},
	{"bubblewrap 198: hidden processes", "TestBug_bubblewrap198_HiddenProcesses TestHiddenProcesses"},
	{"codex 44304, 44329, 23468: decided by bubblewrap's words", "TestBubblewrapsWordsAreNotRead"},
	{"codex 15260: options that an older bubblewrap has not", "TestOptionsAreOldEnough TestBubblewrapsWordsAreNotRead"},
	{"codex 19828: a probe without an end", "TestWhyThereIsNoBox"},
	{"claude-code 34044, 11079: tools and TMPDIR", "TestNothingElseIsNeeded"},
	{"claude-code 46560: off and yet used", "TestDetectKeepsTheSeedsRule"},
	{"fence: no network namespace, and no word", "TestWhyThereIsNoBox"},
	{"langbot 69: cgroup limits that are not held", "TestTakeRefuses TestCheckNeverIgnoresALimit TestALimitThatCannotBeHeldIsRefused"},

	// System calls.
	{"CVE-2017-5226, bubblewrap 142, 143", "TestABoxCannotTypeOnTheTerminal"},
	{"flatpak 2782, snapd 6643, CVE-2019-7303, CVE-2019-10063: high words", "TestBug_TheFilter TestFilterInARealBox TestArgumentRules"},
	{"snapd 12849, CVE-2023-1523, CVE-2023-28100: TIOCLINUX", "TestBug_TheFilter TestFilterInARealBox"},
	{"moby 42680, sandlock 240: clone3", "TestBug_TheFilter TestToolsWorkInABox TestADownloadThroughTheGate"},
	{"mxc 936, moby 45317: families beyond IP", "TestBug_TheFilter TestFilterInARealBox"},
	{"go-microvm 76, codex 10814, seri-agent 346: io_uring", "TestBug_TheFilter TestToolsWorkInABox"},
	{"foreign call tables", "TestBug_seccompForeignModes TestForeignModeIsKilledInARealBox TestForeignCallsKill"},
	{"flatpak 299, runc 453: the session keyring", "TestBug_flatpak299_runc453_SessionKeyring"},
	{"claude-code 44180, codex 2309, 26625: unix sockets", "TestBug_claudecode44180_codex2309_UnixSocketsWork TestToolsWorkInABox"},
	{"bubblewrap 764, nix-bwrapper 55, zypak 37, KiroCrew 7268: sandboxes in the sandbox", "TestBug_bubblewrap764_NestedSandbox TestNestedNamespaces TestChromiumStartsInItsOwnKindOfBoxOnly"},
	{"sandbox-runtime: CapEff is full for root", "TestWhatABoxMayDo TestRootBecomesAnOrdinaryUser"},

	// Processes and terminals.
	{"bubblewrap 633, 700, 529: orphans", "TestAThousandBoxesThatEndAtAnyMoment TestHoldersAreEnded"},
	{"bubblewrap 697, subfloor 358: zombies", "TestBug_bubblewrap697_subfloor358_Zombies TestOrphanStorm"},
	{"bubblewrap 726: Control-C with a session of its own", "TestControlC TestControlCUnderScript"},
	{"greywall 15, bubblewrap 586: a terminal's size", "TestAShellOnATerminal TestAFullScreenProgram"},
	{"sandbox-shell 42, claude-code 31264: job control", "TestStopAndContinueFromAShell TestAShellOnATerminal"},
	{"lince 275: Control-C kills the bridge, and a closed window nothing", "TestTheGatesOutliveControlC TestAClosedWindow"},
	{"sandlock 251: descendants outlive the command", "TestTheBoxEndsWithItsEngine"},
	{"raptor 786, sandbox-runtime, fence: orphans when killed", "TestADeadBoxLeavesNothing TestAThousandBoxesThatEndAtAnyMoment"},
	{"golang/go 27505: the death signal of a thread", "TestBoxesOutliveThreads"},
	{"NemoClaw 809, nono 1403: a fork bomb takes the machine", "TestAForkBombStaysInItsBox TestABombGoingOffStopsNobody TestGroupFromItsBirthToItsEnd"},
	{"firejail 4845, cplt 329, sandbox-runtime (251 leaked): inherited files", "TestNoFileIsInherited"},
	{"sandbox-runtime: a socket left by each run", "TestAThousandBoxesThatEndAtAnyMoment TestTakeoverAfterSIGKILL"},
	{"claude-code 93862, 62743: the first connect", "TestTheFirstConnectSucceeds"},
	{"boundary 98: the host's network", "TestBug_boundary98_HostNetwork"},
	{"sandbox-runtime 157: arguments split at blanks", "TestNothingAfterTheDashesIsParsed TestAnArgumentOfManyBytes"},
	{"CatDesk 14: another working folder than the caller's", "TestWhereABoxCanWrite"},

	// Secrets, and honesty.
	{"inflexa 88, bobbit 225: environments of PID 1 and the keeper", "TestWhatABoxSeesOfProcesses TestPID1OfABoxHoldsNothing TestBug_inflexa88_bobbit225_EnvironmentOfTheWorker"},
	{"qwen-code 12269, mulmoclaude 352: secrets in command lines", "TestBug_qwencode12269_SecretsInCommandLines"},
	{"sbx 53: login shells", "TestBug_sbx53_LoginShells"},
	{"desktop-feedback 114: stale keys", "TestBug_desktopfeedback114_StaleKeys"},
	{"nono 760: the gates in NO_PROXY", "TestBug_nono760_NoProxy"},
	{"kilocode 11659: a dead oracle passes", "TestEachControlNoticesItsOwn TestEmptyFixtureProvesNothing"},

	// The broker.
	{"codex 16719, qm 522, gh-aw 27710, babysitter 200: a base URL in the environment is not read, the vendor is dialled", "TestLaunchSettings TestEnginesCompleteATurn TestCodex"},
	{"codex 19821, 43353, CC-Manager PR 94: a refused WebSocket costs retries and words", "TestAWebSocketIsProxied TestWebSocketsThatAreRefused TestCodex"},
	{"gh-aw-firewall 2025, 3022: any caller gets completions", "TestRefusalsHaveTheVendorsShape TestAStolenTokenIsRevoked"},
	{"litellm 13252, ai-gateway 1360: the query is matched as part of the path", "TestRequestForms"},
	{"claude-relay-service 1027, 1030: compressed streams are decoded as text", "TestBodiesPassByteForByte TestACompressedEchoIsSearched"},
	{"claude-code-proxy PR 32: lines of events are lost", "TestEventsComeAsTheyAreSent"},
	{"litellm 28384, eca PR 479: a stream comes in one lump", "TestStreamsAreNotBuffered TestEventsAreNotHeldBack"},
	{"claudex PR 6, agent-prompttrain PR 199, llm-gateway 2126, claude-code-proxy PR 152: long sessions are too large", "TestABodyOfAnySizeStreamsThrough TestBodiesPassByteForByte"},
	{"mcp-auth-proxy 115, ai-dial-core 1667: a redirect to the slash is handed on", "TestMCPRedirects"},
	{"chatcli PR 918: a slash is trimmed", "TestMCPTargets"},
	{"typescript-sdk 583, python-sdk 412, 242, fast-note-sync-service 273: the endpoint event", "TestEndpointEventsAreRewritten TestForeignEndpointsAreRefused"},
	{"claude-code 2831, 7290, 47424, 47296: a 401 begins a sign-in", "TestMCPRefusalsByMethod TestClaudeCodeLivesWithRefusals"},
	{"toolhive 3691, pomerium PR 6288, go-sdk 1262: streams have an end", "TestSilenceSurvives TestQuietStreamsLive"},
	{"yaklang PR 4354, mcp-go 146: a client gives a quiet stream up", "TestOurEventsStandBetween"},
	{"mcp-auth-proxy 103, 128, golang/go 56228: the abort of a handler", "TestAnUpstreamThatBreaksOffLooksBroken TestAFaultOfOursIsAnAnswer"},
	{"llama-swap 980, golang/go 20071: a client's end does not reach the upstream", "TestAClientThatGoesCancelsTheUpstream"},
	{"clodex 158, claude-code-cache-fix PR 371: 502 after a pause", "TestAnUpstreamThatClosesIdleConnections"},
	{"powerproxy-aoai 53, Floway 96: framing fields are copied", "TestFramingOfAnswersIsMadeAnew TestResponseHeaders"},
	{"sbx 196, 8, cc-switch 1510, OpenShell 2161: the table is lost and the placeholder goes out", "TestALostTableSendsNothing TestAnotherBootKeyOpensNothing TestASealedRecordCannotMove"},
	{"suna PR 6096: the caller chooses the upstream", "TestTheBoxCannotChooseTheUpstream"},
	{"CVE-2026-21852: the project's settings send the token elsewhere", "TestEnginesCompleteATurn TestClaudeCodeCompletesATurn"},
}

// A row names tests that there are: one that is renamed takes its row along.
func TestEveryReportHasItsTests(t *testing.T) {
	there := map[string]bool{}
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(rig.Root(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range name.FindAllStringSubmatch(string(text), -1) {
			there[found[1]] = true
		}
		return err
	})
	if err != nil || len(there) < 100 {
		t.Fatalf("%d tests, %v", len(there), err)
	}
	for _, row := range reports {
		if row.tests == "" {
			t.Errorf("%s: no test", row.report)
		}
		for test := range strings.FieldsSeq(row.tests) {
			if !there[test] {
				t.Errorf("%s: there is no %s", row.report, test)
			}
		}
	}
}
