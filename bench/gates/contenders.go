package main

import (
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

	figures map[string][]float64
}

// The first is what the others are compared with, the second is ours.
func contenders(top string) []*contender {
	root := top + "/peers/root"
	lib := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	libs := []string{"LD_LIBRARY_PATH=" + root + "/usr/lib/" + lib}
	host, port, _ := strings.Cut(proxy, ":")
	return []*contender{
		{name: "bare relay", argv: []string{top + "/bench", "relay", proxy}},
		{name: "botbox egress gate", argv: []string{top + "/alone", proxy}, policy: true},
		{name: "smokescreen", argv: []string{top + "/peers/smokescreen", "--listen-ip", host, "--listen-port", port}, policy: true},
		{name: "elazarl/goproxy", argv: []string{top + "/peers/goproxy", proxy}},
		{name: "tinyproxy", argv: []string{root + "/usr/bin/tinyproxy", "-d", "-c", top + "/config"}, env: libs, config: `
Listen ` + host + `
Port ` + port + `
Timeout 600
MaxClients 4096
LogLevel Critical
`},
		{name: "squid", argv: []string{root + "/usr/sbin/squid", "-N", "-f", top + "/config"}, env: libs, config: `
http_port ` + proxy + `
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
	if c.figures == nil {
		c.figures = map[string][]float64{}
	}
	c.figures[what] = append(c.figures[what], value)
}
