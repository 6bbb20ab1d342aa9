package api_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// authority makes certificates of clients.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "CA"}})
	return a
}

// sign makes a certificate and its key; the first one signs itself.
func (a authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// client returns a client with a certificate of a name.
func (a authority) client(server *httptest.Server, name string) *http.Client {
	cert, key := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// A client certificate that the server has verified names the caller. One of another authority is refused.
func TestCertificates(t *testing.T) {
	t.Parallel()
	db := ledgertest.Pool(t, databaseRoles...)
	o := api.TokenOptions{Name: "till-7", Role: api.Producer, NoSecret: true}
	if _, _, err := api.CreateToken(t.Context(), db, o); err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Config{DB: db, Certificates: true})
	if err != nil {
		t.Fatal(err)
	}
	trusted, other := newAuthority(t), newAuthority(t)
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshake that fails
	roots := x509.NewCertPool()
	roots.AddCert(trusted.cert)
	server.TLS = &tls.Config{ClientCAs: roots, ClientAuth: tls.VerifyClientCertIfGiven}
	server.StartTLS()
	defer server.Close()
	get := func(c *http.Client) int {
		t.Helper()
		response, err := c.Get(server.URL + "/version")
		if err != nil {
			return 0 // the handshake fails
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	for name, test := range map[string]struct {
		client *http.Client
		status int
	}{
		"known":           {client: trusted.client(server, "till-7"), status: http.StatusOK},
		"unknown":         {client: trusted.client(server, "till-8"), status: http.StatusUnauthorized},
		"no certificate":  {client: server.Client(), status: http.StatusUnauthorized},
		"other authority": {client: other.client(server, "till-7"), status: 0},
	} {
		if status := get(test.client); status != test.status {
			t.Errorf("%s: %d, want %d", name, status, test.status)
		}
	}
}
