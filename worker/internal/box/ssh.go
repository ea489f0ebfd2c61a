package box

import (
	"os"
	"path/filepath"

	"github.com/openmausbot/botbox/shared/boxenv"
)

// sshFolders are where distributions let OpenSSH's own settings include more
// from. ssh reads an included file only if it is root's or its user's, and ends
// otherwise ("Bad owner or permissions"). In a box root is nobody, so one file
// in there, such as systemd's (256 and newer), leaves no ssh working.
var sshFolders = []string{
	"/etc/ssh/ssh_config.d",
	"/usr/etc/ssh/ssh_config.d", // openSUSE
}

// sshName is a file of the box's own in each of them.
const sshName = "botbox.conf"

func lookAtSSH() (there []string) {
	for _, dir := range sshFolders {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() && resolve(dir) == dir {
			there = append(there, dir)
		}
	}
	return there
}

// addSSH gives the box such folders of its own, which say how ssh gets out.
func (p *Plan) addSSH(m Machine) {
	for _, dir := range m.SSHFolders {
		p.addTmpfs(dir, mib, "ssh refuses the machine's files there: root is nobody in a box")
		if len(p.Listen) > 0 {
			p.addContent(filepath.Join(dir, sshName), boxenv.SSHConfig)
		}
	}
}

// closeSSH makes them read-only, as all of /etc.
func (p *Plan) closeSSH(m Machine) {
	for _, dir := range m.SSHFolders {
		p.add(ROAgain, "", dir, "the system's settings are read-only")
	}
}
