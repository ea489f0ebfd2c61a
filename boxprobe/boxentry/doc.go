// Boxentry is the first program in a box, and gone when the engine starts.
//
// Zone: inside the box.
//
// Its other use is `boxentry connect HOST PORT`, which programs in the box run
// as ssh's ProxyCommand; it asks the egress gate, as they could themselves.
//
// Given: by the worker, through bubblewrap's command line: which ports to
// listen on, which limits to set, and the engine's own words; and one end of
// the entry socket.
//
// Authority: none. It runs with the engine's rights, before the engine does.
//
// Refuses: to start the engine without the worker's "go", on any doubt. What
// it donates are sockets that were born in the box's network namespace, so
// that the worker serves them and no process of ours stays in the box.
package main
