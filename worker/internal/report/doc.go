// Package report is what the worker says of itself and of this machine.
//
// Zone: worker.
//
// Given: findings of our own code; no text of a box.
//
// Authority: the key that signs reports, which it keeps in the state folder.
//
// Refuses: to call a check passed that did not run or that ran too long ago,
// to sign with a key that others can read, and to hold a secret: it has no
// field for a value, a path of a request or a token.
//
// # The signed form
//
// A signed report is one JSON object, without spaces, in this order:
//
//	{"v":"v1","timestamp":"1796011200","nonce":"…","path":"/v1/report",
//	 "body":"{\"box\":…}","hmac":"…","ed25519":"…","key":"…"}
//
// body is a text: the report as JSON. Nothing is put into a canonical form,
// for the bytes of that text (UTF-8, without JSON's escapes) are what is
// signed. timestamp is in whole seconds since 1970, nonce is the caller's own
// or one of ours: 16 to 128 characters of base64url.
//
// Both signatures are made over the same text, which is the one that the
// Admin's signed requests have:
//
//	v1\n<timestamp>\n<nonce>\nPOST\n<path>\n<base64url of SHA-256(body)>
//
// without a newline at the end. The word POST is fixed: the form knows no
// other. hmac is HMAC-SHA256 of it, keyed with the text of
// OMB_CLOUD_BOOTSTRAP_SECRET; it is empty where the worker has no such secret.
// ed25519 is the signature by the machine's own key, whose public half key
// gives (32 bytes). All base64url is without padding.
//
// The body names the signatures that were made ("signed"), so that none can
// be taken away unseen. A verifier accepts a report only from the key that it
// already knows, never from the one that the report names. testdata holds
// published test vectors.
package report
