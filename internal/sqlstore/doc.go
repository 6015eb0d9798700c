// Package sqlstore keeps conversations, traces and what is known about hooks in
// one SQLite file.
//
// [Open] makes this process the owner of a data folder, [Attach] looks in beside
// the owner:
//
//	keys, err := vault.Open(dir, os.Getenv("BELAY_KEY_FILE"))
//	store, err := sqlstore.Open(ctx, dir, sqlstore.Options{Vault: keys, Logger: logger})
//	defer store.Close()
//
//	id := conversation.ID{Tenant: "main", Agent: "clinic", Sender: "ann"}
//	err = store.Append(ctx, id, []conversation.Event{{Seq: 1, Kind: conversation.User, Text: "hi", At: now}})
//	events, err := store.Load(ctx, id)
//
// # Durability
//
// [Store.Append] returns when its events are on disk (WAL, synchronous=FULL).
// One goroutine writes: it takes all appends that wait, of all conversations,
// into one transaction and syncs once, so many conversations share what a sync
// costs. An append that cannot be (its Seq is there already) fails alone; a disk
// that fails, fails every append of that transaction, and the next one starts
// afresh. Trace lines and hook counts need no sync of their own: they go along
// with the next append, or after 0.2 s; [Store.Flush] waits for them.
//
// # Jobs
//
// [Store.Jobs] is the journal of durable jobs, with a data key for each job. An
// answer is on disk when it is kept. A claim, a renewal and the beginning of a
// step that may be made again do not wait for the disk: they outlive this process
// at once, and the machine together with the next write that waits. Opening the
// store voids the leases of the owner before.
//
// # Model calls
//
// What models were asked, by whom and at what cost, stands under the data key of the
// job (package spend). Tenant, agent, time, cost and tokens are in plain, to be added
// up. When a job is deleted only these stay, until no budget's month counts them.
//
// # Secrecy
//
// Texts, arguments, results and traces are sealed under a data key of the
// conversation's own, bound to their row (package vault). In plain are who talks
// to which agent, when, the kinds of events, and the ids of turns. Bodies over
// 32 KiB stand once in a conversation, under a keyed digest. [Store.Delete]
// drops the data key and the rows, and clears the write-ahead log, so that no
// file of the folder has the key any more.
//
// # Who changed what
//
// Tokens, installed plugins, applied policies and the messages of package notice
// stand here too, in plain: names, numbers and hashes. What changes one of them
// writes its audit entry in the same transaction; what is done to jobs takes along
// what [audit.Along] gives it.
//
// # Queries
//
// The SQL is in queries/ and migrations/; package rows is generated from it by
// sqlc.
package sqlstore

//go:generate go -C ../../tools/sqlc tool sqlc generate -f ../../internal/sqlstore/sqlc.yaml
