// Package broker runs the NATS server of taskledger serve, for a database without another NATS server. Programs with
// the database's address connect to it by package natsclient.
//
// One process at a time holds the lease broker (package lease) and runs the server; others stand by. The lease contains
// the server's address. The database stores the passwords of the server's users, and each role may read its own user's
// password. Passwords stay the same when the server starts again, even on another machine.
//
// With peers, each process runs a server, and together they are a cluster with replicated streams. Each server has its
// own lease, broker/HOST:PORT. Clients connect to any member that is connected to a majority. Servers with different
// peers do not run at the same time: the first one stays, and the others stand by until it has ended. The members prove
// to each other that they know a secret, which the database stores next to the passwords.
//
// # Copies of a database
//
// A dump or a physical copy also contains the lease and the passwords. Workers of the copy must not touch the
// original's stream. Therefore the server's process holds an advisory lock on a connection to its database, and the
// lease contains the lock's number, the nonce. A client connects only if that lock is held in its own database: then
// both are connected to one live primary. No copy contains a session's lock.
//
// The lock needs a connection of its own, so serve refuses a pooler in transaction mode.
//
// A server that cannot renew its lease stops. Clients that still reach it then find the server of the new holder.
package broker
