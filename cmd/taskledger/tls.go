package main

import (
	"crypto/x509"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"

	"github.com/taskledger/taskledger/internal/pgerr"
)

// tlsSettings are the names of the settings that cure a refused TLS connection.
type tlsSettings struct {
	server  string // name of the server
	address string // setting with its address
	trust   string // setting with the file of the CA
	client  string // settings with the client's certificate
}

var (
	databaseTLS = tlsSettings{server: "PostgreSQL", address: envDatabaseURL, trust: "sslrootcert in " + envDatabaseURL,
		client: "sslcert and sslkey in " + envDatabaseURL}
	natsTLS = tlsSettings{server: "NATS", address: envNATSURL, trust: envNATSCA,
		client: envNATSCert + " and " + envNATSKey}
)

// cure returns the cure of a refused TLS connection. It returns "" for another error.
func (s tlsSettings) cure(err error) string {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case err == nil, isAnswered(err):
		return ""
	case errors.As(err, &authority):
		return "name the file of the CA that signed the certificate of " + s.server + ": " + s.trust
	case errors.As(err, &name):
		return "name the server in " + s.address + " as its certificate does, or make a certificate with that name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate of " + s.server + ", or correct the clock of this machine"
	case errors.Is(err, nats.ErrSecureConnWanted), refusesTLS(err):
		return "enable TLS in " + s.server + ", or do not require it in " + s.address
	}
	for _, alert := range []string{"certificate required", "valid client certificate", "bad certificate",
		"unknown certificate authority", "unknown authority", "expired certificate", "error decrypting message"} {
		if strings.Contains(err.Error(), alert) {
			return s.server + " requires a certificate of the client that its CA has signed: set " + s.client
		}
	}
	// NATS checks the client's certificate after the handshake, and its alert can be lost.
	isClosed := errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
	if s == natsTLS && isClosed {
		return "NATS closes the connection: if it requires a certificate of the client that its CA has signed, set " +
			s.client
	}
	return ""
}

// isAnswered reports whether PostgreSQL has refused the login itself, so that TLS is not the cause.
func isAnswered(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == pgerr.InvalidPassword || pg.Code == pgerr.InvalidCatalogName ||
		pg.Code == pgerr.InsufficientPrivilege)
}

// refusesTLS reports whether PostgreSQL has refused TLS in every attempt to connect. With sslmode=prefer, the default,
// an attempt without TLS follows, which fails for a different reason.
func refusesTLS(err error) bool {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return false
	}
	for _, attempt := range attempts(connect.Unwrap()) {
		if !strings.Contains(attempt.Error(), "server refused TLS connection") {
			return false
		}
	}
	return true
}

// attempts returns the errors that err joins, else err itself.
func attempts(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, attempts(e)...)
	}
	return all
}

// checkCA returns an error if a file contains no certificate.
func checkCA(file string) error {
	text, err := os.ReadFile(file)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(text) {
		err = errors.New("it contains no certificate")
	}
	return err
}

// tlsFileFaults are the causes, in package pgconn, of a database address whose TLS files can be read but not used. They
// contain no part of the address.
var tlsFileFaults = []string{
	"unable to add CA to cert pool", "both \"sslcert\" and \"sslkey\" are required", "failed to decode sslkey",
	"unable to find sslpassword", "unable to decrypt key", "unable to load cert",
}

// tlsFileFault returns why the TLS files of a database address cannot be used, "" if that is not the error.
func tlsFileFault(err error) string {
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return ""
	}
	cause := errors.Unwrap(parse)
	for _, fault := range tlsFileFaults {
		if cause != nil && strings.HasPrefix(cause.Error(), fault) {
			return cause.Error()
		}
	}
	return ""
}
