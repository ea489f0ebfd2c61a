// Package botfiles lets a folder change hands between the worker's account and
// a bot's own Linux user, and back.
//
// Zone: worker, in a user namespace of the bot's: the account is root there,
// over its own files and the bot's and nobody else's.
//
// Given: a folder whose tree a bot may have made, hostile names, links and
// mounts among it.
//
// Authority: to give what the account or the bot owns below the folder to the
// other of the two, and to let the bot's user go through folders of the
// account's on the way there.
//
// Refuses: to follow a link, to cross into another file system, to touch what
// a third user owns, and a file that has a name outside the folder as well,
// for that name would change hands with it. It looks at all of the tree before
// it changes any of it, and a run that was cut off can be made again.
package botfiles
