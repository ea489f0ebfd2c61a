// Botbox is the worker and the command line: one program, because both have
// one privilege.
//
// Zone: worker. An ordinary user's process: no capability, no_new_privs, not
// dumpable.
//
// Given: settings by the operator, a command line by its user, specs through
// lease.sock, and by the supervisor a control channel and the boot key.
//
// Authority: keys, tokens and all boxes of this machine; nothing of root's.
//
// Refuses: to be root. Called by root it becomes the sudo caller or maus
// before it does anything else, and says so.
package main
