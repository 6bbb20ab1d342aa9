// Package broker runs the NATS server of taskledger serve for a database without another one. Programs that have the
// database's address connect to it by package natsclient.
//
// One process at a time has the lease broker (package lease) and runs the server; others stand by. The lease has the
// server's address. The passwords of its users are in the database, and each role may read that of its own user. They
// stay the same when the server starts again, on whichever machine.
//
// With peers, each process runs a server at once, and together they are a cluster with replicated streams. Each has a
// lease of its own, broker/HOST:PORT, and clients connect to any of them that is connected to most of the others. No
// server runs beside one with other peers: the one that began earlier stays, and the others stand by until it has
// ended. The members prove to each other that they know a secret, which is in the database beside the passwords.
//
// # Copies of a database
//
// A dump and a physical copy have the lease and the passwords, too. Workers of the copy must not touch the original's
// stream. So the process of the server holds an advisory lock of a connection to its database, whose number, the nonce,
// is in the lease. A client connects only if that lock is held in its own database: then both are connected to one
// live primary. No copy has a lock of a session.
//
// The lock needs a connection of its own, so serve refuses a pooler in transaction mode.
//
// A server that cannot renew its lease stops, so that clients which still reach it find the server of the process that
// has the lease now.
package broker
