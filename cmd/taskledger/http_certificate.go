package main

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// serverCertificate is the certificate of the HTTP server, in two files. It reads them again when one has changed. It
// is safe for concurrent use.
type serverCertificate struct {
	cert, key string       // files
	log       *slog.Logger // receives why changed files cannot be used

	mu   sync.Mutex
	pair *tls.Certificate // the newest usable one
	read [2]fileVersion   // of the files when they were read last, with success or not
}

// fileVersion differs after a file was written or replaced.
type fileVersion struct {
	changed time.Time
	size    int64
}

// newServerCertificate reads the files.
func newServerCertificate(cert, key string, log *slog.Logger) (*serverCertificate, error) {
	c := &serverCertificate{cert: cert, key: key, log: log, read: versionsOf(cert, key)}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	c.pair = &pair
	return c, nil
}

// get returns the certificate for a connection. While the files do not match, as in the middle of a renewal, it returns
// the previous certificate.
func (c *serverCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := versionsOf(c.cert, c.key)
	if found == c.read {
		return c.pair, nil
	}
	c.read = found
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		c.log.Warn("cannot read the changed certificate of the HTTP server; the previous one stays", "error", err)
		return c.pair, nil
	}
	c.pair = &pair
	return c.pair, nil
}

// versionsOf returns the versions of the files. The version of an unreadable file is zero.
func versionsOf(files ...string) (all [2]fileVersion) {
	for i, file := range files {
		if info, err := os.Stat(file); err == nil {
			all[i] = fileVersion{changed: info.ModTime(), size: info.Size()}
		}
	}
	return all
}
