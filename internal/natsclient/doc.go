// Package natsclient connects programs to the NATS server that package broker runs for their database. The database
// stores the server's address, the certificate that clients trust, and each user's password.
//
// A copy of the database contains these, too. Therefore a client connects only if the server's lock is held in the
// client's own database: then both are connected to one live primary.
package natsclient
