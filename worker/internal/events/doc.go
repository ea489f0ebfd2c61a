// Package events keeps the latest of what happened to boxes and at their
// gates, for whoever asks: GET /v1/events and `botbox logs`.
//
// Zone: worker.
//
// Given: decisions of the gates, whose hosts a box chose, and the starts and
// ends of boxes.
//
// Authority: none. It holds no path, query, user name, header or token, for it
// is given none.
//
// Refuses: to make anybody wait. A reader that is slower than the gates loses
// events and is told how many; a gate never notices that there are readers.
package events
