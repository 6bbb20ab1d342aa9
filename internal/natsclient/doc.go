// Package natsclient connects programs to the NATS server that package broker runs for their database. The database has
// the server's address, the certificate that clients trust, and the password of each user.
//
// A copy of the database has these, too. So a client connects only if the server's lock is held in the client's own
// database: then both are connected to one live primary.
package natsclient
