// Package box builds one bubblewrap box and watches it.
//
// Zone: worker.
//
// Given: a decoded spec, which is not trusted, and facts about the machine,
// which our own code gathered.
//
// Authority: it opens the folders that enter a box, and it alone in this zone
// starts programs (spawn.go): bubblewrap by its absolute path, and for the
// self-check boxprobe, which our own code has opened; nothing else.
//
// Refuses: a bubblewrap that is setuid, too old or replaceable by others; a
// path that is the data folder, holds it, holds the system or goes through a
// symbolic link; and to go on without a layer. NewPlan and Argv are pure: what
// a box is can be read from a golden file.
package box
