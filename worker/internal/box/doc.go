// Package box builds one bubblewrap box and watches it.
//
// Zone: worker.
//
// Given: a decoded spec, which is not trusted, and facts about the machine,
// which our own code gathered, some of them from files that a box may have
// written.
//
// Authority: it opens the folders that enter a box, and it alone in this zone
// starts programs (spawn.go): bubblewrap by its absolute path; and, both opened
// by our own code, boxprobe for the self-check, and boxentry to hear what the
// kernel refuses where no box stands; nothing else. It never runs git.
//
// Refuses: a bubblewrap that is setuid, too old or replaceable by others; a
// path that is the data folder or the worker's own, holds it, holds the system
// or a known socket, or goes through a symbolic link; and to go on without a
// layer. NewPlan and Argv are pure: what a box is can be read from a golden
// file.
//
// # Nested mounts
//
// bubblewrap before 0.12 follows a symbolic link at a mount's destination and
// makes what is missing there, outside the box (CVE-2026-87766), and a deny
// mount for something that is missing leaves a file in the user's tree. So
// almost everything stands in the box's own root or in a tmpfs, where nobody
// but this box can plant a link. Four kinds of mount stand in a folder that the
// box can write:
//
//   - the masks of the data folder and of the worker's own folders;
//   - a team's sign-in in an engine home;
//   - what keeps hooks, config and the like of git read-only;
//   - a read-only work folder in a HOME that can be written.
//
// For these the destination must be there already, be of the right kind, and
// be reached from the held folder without a link. Every folder on the way is
// made a mount point (a pin), since a folder that merely holds one can be
// renamed, and with it what is hidden. As each box that sees the place has the
// same mounts, no box can move or exchange them while it runs. What is left is
// a destination that was made after another box had started: once the box is
// up and before its engine runs, the worker compares the box's mounts and the
// machine's files with what it had opened, and gives the box up if they differ.
// In that one race bubblewrap before 0.12 can still have made an empty file or
// folder, as the user that boxes run as; from 0.12 on it refuses.
//
// An engine home stands at its own path and is bound whole, because engines
// renew files at its top by rename. The server's HOME is then nowhere in the
// box. A sign-in's place in it has to be made with the engine home.
//
// # What the guard of git does not stop
//
// It protects what is there when the box starts. A box can make a repository
// of its own in the work folder, add hooks to one that had no such folder, add
// a file commondir to a plain repository, write a config that somebody outside
// replaces while the box runs, and change what a project's own tools
// execute: Makefile, package.json, .envrc, the target of a core.hooksPath in
// the tree. Run git in the box, or as
// git -c core.hooksPath=/dev/null -c core.fsmonitor=false.
// In a box git cannot change config, pack or delete a packed branch of a linked
// work tree, and git's submodules keep their hooks writable.
package box
