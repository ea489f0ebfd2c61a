// Botbox-supervisor hardens the machine, gives its privileges up and keeps one
// unprivileged worker alive. What it does is the tables of steps.go, in their
// order, and then control.Run.
//
// Zone: root; after the boot with three capabilities, which start, change the
// user of, and end processes.
//
// Given: a command line and an environment by whoever starts the container or
// the service, who is trusted; frames by the worker, which is not.
//
// Authority: the machine, until the step "drop"; the worker's boot key.
//
// Refuses: to start as anybody but root, to go on when a drop cannot be read
// back, and every frame that no worker of ours writes: it costs the worker its
// life. It never walks or opens what a box can write.
package main
