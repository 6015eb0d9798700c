// Package vault keeps the keys: one master key for a data folder, and under it
// one data key for each conversation.
//
// The master key is an age identity (X25519) in a file that only its owner may
// read. [Open] reads it, or makes it in a new data folder:
//
//	v, err := vault.Open(dir, os.Getenv("BELAY_KEY_FILE"))
//
// A data key encrypts the rows of one conversation. It is stored sealed under
// the master key; whoever drops the sealed bytes has erased the conversation,
// wherever copies of its rows may be:
//
//	key, sealed, err := v.NewDataKey()       // store sealed
//	key, err = v.Open(sealed)                // after a restart
//	row := vault.Row{Table: "event", Seq: 7, Names: []string{tenant, agent, sender}}
//	secret := key.Seal(plain, row)
//	plain, err = key.Open(secret, row)       // fails for any other row
//
// Without the master key nothing can be read again: back it up, apart from the
// data.
package vault
