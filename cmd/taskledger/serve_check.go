package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// checkTimeout bounds a check. The process itself gives up on PostgreSQL earlier.
const checkTimeout = 9 * time.Second

// check returns nil if the process that listens at --listen can work.
func (f serveFlags) check(ctx context.Context) error {
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return usagef("--check needs --listen HOST:PORT or :PORT, as the process to check has, got %q", f.listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	client := &http.Client{}
	if f.api.cert != "" {
		secured, err := trusting(f.api.cert)
		if err != nil {
			return err
		}
		client.Transport = &http.Transport{TLSClientConfig: secured}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	url := f.api.scheme() + net.JoinHostPort(host, port) + "/readyz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usagef("--listen: %s", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return failf(exitUnavailable, "%s does not answer: %s", url, reason(err))
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // what has arrived is enough
		return failf(exitUnavailable, "%s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// trusting returns the configuration of a client that trusts a server's certificate alone, whatever its address is.
func trusting(file string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, usagef("the certificate: %s", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, usagef("%s contains no certificate", file)
	}
	block, _ := pem.Decode(text)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, usagef("%s: %s", file, err)
	}
	name := ""
	if len(leaf.DNSNames) > 0 {
		name = strings.Replace(leaf.DNSNames[0], "*", "check", 1)
	} else if len(leaf.IPAddresses) > 0 {
		name = leaf.IPAddresses[0].String()
	}
	return &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}, nil
}
