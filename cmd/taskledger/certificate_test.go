package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// authority is a certificate authority, with the files that it has made.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // of its certificate
}

// newAuthority makes an authority in a directory that the user of PostgreSQL can enter.
func newAuthority(t *testing.T) *authority {
	t.Helper()
	dir, err := os.MkdirTemp("", "taskledger-tls-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := &authority{t: t, dir: dir, file: filepath.Join(dir, "ca.pem")}
	a.key = a.newKey()
	template := a.template("authority of "+filepath.Base(dir), time.Hour)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert = template
	a.write(a.file, "CERTIFICATE", a.sign(template, &a.key.PublicKey))
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) template(name string, validFor time.Duration) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(validFor),
	}
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PublicKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

// issue makes a certificate for 127.0.0.1, and for clients. It ends after validFor, which may be negative.
func (a *authority) issue(name string, validFor time.Duration) (certFile, keyFile string) {
	a.t.Helper()
	key := a.newKey()
	template := a.template(name, validFor)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+"-key.pem")
	a.write(certFile, "CERTIFICATE", a.sign(template, &key.PublicKey))
	a.write(keyFile, "EC PRIVATE KEY", der)
	return certFile, keyFile
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	a.writeText(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// writeText writes a file with mode 0600. The files of a server that root starts belong to its user.
func (a *authority) writeText(name string, text []byte) {
	a.t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		a.t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return
	}
	postgres, err := user.Lookup("postgres")
	if err != nil {
		a.t.Fatal(err)
	}
	id, err := strconv.Atoi(postgres.Uid)
	if err == nil {
		err = os.Chown(name, id, -1)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}
