package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
)

// contender is one proxy, and what its turns gave: one figure a round.
type contender struct {
	name   string
	argv   []string
	env    []string
	config string // of a file that argv names
	policy bool   // it refuses private addresses
	ours   bool   // it is started as the supervisor starts the worker

	address string
	process *exec.Cmd
	bulk    int64 // bytes of one transfer
	figures map[string][]float64
}

// contenders are what is measured. The first is what the others are compared
// with, the second is ours. CONFIG stands for the file, HOST:PORT for where to
// listen.
func contenders(top string) []*contender {
	all := rows(top)
	for i, c := range all {
		c.address = fmt.Sprintf("127.0.0.1:%d", 3128+i)
		host, port, _ := strings.Cut(c.address, ":")
		fill := strings.NewReplacer("HOST", host, "PORT", port)
		for i := range c.argv {
			c.argv[i] = fill.Replace(c.argv[i])
		}
		c.config = fill.Replace(c.config)
		c.figures = map[string][]float64{}
	}
	return all
}

func rows(top string) []*contender {
	root := top + "/peers/root"
	lib := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	libs := []string{"LD_LIBRARY_PATH=" + root + "/usr/lib/" + lib}
	return []*contender{
		{name: "bare relay", argv: []string{top + "/bench", "relay", "HOST:PORT"}},
		{name: "botbox egress gate", argv: []string{top + "/alone", "HOST:PORT"}, policy: true, ours: true},
		{name: "smokescreen", argv: []string{top + "/peers/smokescreen", "--listen-ip", "HOST", "--listen-port", "PORT"}, policy: true},
		{name: "elazarl/goproxy", argv: []string{top + "/peers/goproxy", "HOST:PORT"}},
		{name: "tinyproxy", argv: []string{root + "/usr/bin/tinyproxy", "-d", "-c", "CONFIG"}, env: libs, config: `
Listen HOST
Port PORT
Timeout 600
MaxClients 4096
LogLevel Critical
`},
		{name: "squid", argv: []string{root + "/usr/sbin/squid", "-N", "-f", "CONFIG"}, env: libs, config: `
http_port HOST:PORT
http_access allow all
cache deny all
access_log none
cache_log /dev/null
cache_store_log none
pid_filename none
coredump_dir ` + top + `
mime_table ` + root + `/usr/share/squid/mime.conf
icon_directory ` + root + `/usr/share/squid/icons
error_directory ` + root + `/usr/share/squid/errors/templates
unlinkd_program ` + root + `/usr/lib/squid/unlinkd
logfile_daemon ` + root + `/usr/lib/squid/log_file_daemon
hosts_file none
dns_nameservers 127.0.0.1
visible_hostname bench
pinger_enable off
max_filedescriptors 8192
shutdown_lifetime 0 seconds
`},
	}
}

func (c *contender) note(what string, value float64) {
	c.figures[what] = append(c.figures[what], value)
}
