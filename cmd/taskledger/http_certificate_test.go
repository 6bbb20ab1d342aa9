package main

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

// A renewed certificate of the HTTP server is served without a restart. While its files do not fit each other the
// previous one stays, and one line is logged.
func TestRenewedHTTPCertificate(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cert, key := a.issue("server", time.Hour)
	renewedCert, renewedKey := a.issue("renewed", time.Hour)
	replace := func(file, by string) {
		t.Helper()
		text, err := os.ReadFile(by)
		if err == nil {
			err = os.WriteFile(file+".new", append(text, '\n'), 0o600) // of another size, whatever the clock's step is
		}
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	listener, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	secured, err := apiFlags{cert: cert, key: key}.secure(listener, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = secured.Close() }()
	go func() {
		for {
			conn, err := secured.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	served := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	want := func(name string) {
		t.Helper()
		if got := served(); got != name {
			t.Errorf("certificate of %s, want that of %s", got, name)
		}
	}
	want("server")
	replace(cert, renewedCert)
	want("server")
	want("server")
	replace(key, renewedKey)
	want("renewed")
	_ = os.Remove(cert)
	want("renewed")
	replace(cert, renewedCert)
	want("renewed")
	if n := strings.Count(log.String(), "cannot read the changed certificate"); n != 2 {
		t.Errorf("%d lines, want one for each failure:\n%s", n, &log)
	}
}
