// Package secret finds the secrets that are known in texts and JSON values, without
// knowing them.
//
// Of a secret's value, fingerprints are made once, for every form in which it may
// turn up (see [Form]). They are kept where the value is not:
//
//	prints, err := key.Prints(value)                       // a Key is a tenant's
//	entry := secret.Entry{Name: "CRM_TOKEN", Prints: prints}
//	file := key.Encode(entry)                              // to keep
//	entry, err = key.Decode(file)                          // ErrPrints: damaged, or another key's
//
// A [Scanner] is made of fingerprints alone:
//
//	scanner := secret.NewScanner(key, entries)
//	findings := scanner.Scan(text)
//	findings, err := scanner.ScanJSON(raw)                 // with JSON pointers
//	shown := scanner.Mask(text)                            // "… [secret CRM_TOKEN] …"
//
// # How it finds
//
// The text is looked at every 4 bytes: a keyed hash of 5 bytes asks a bitmap whether
// any form of any secret has them. Every stretch of 8 bytes holds one such window, and
// no form is shorter. Few windows pass; around them a keyed hash of 8 bytes names the
// forms that may be here, and HMAC-SHA-256 over the whole length settles it. So a text
// without secrets is read once, at some gigabytes a second, however many secrets there
// are. JSON is not parsed: its bytes are scanned as they are, after a copy in which
// escapes are resolved where there are any. It is parsed once something was found, to
// say where.
//
// # What fingerprints give away
//
// Nothing without the key. Whoever has fingerprints and key can try values, and is
// told by the hashes of windows when they are near; so both are kept encrypted, and a
// value must have 8 bytes at least.
package secret
