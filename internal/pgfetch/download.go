package pgfetch

import (
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// maxArchive is larger than any archive, in bytes.
const maxArchive = 200 << 20

// answerTimeout bounds how long the registry may take to begin an answer, and to continue it.
const answerTimeout = 30 * time.Second

var errStalled = fmt.Errorf("no more bytes for %s", answerTimeout)

// download stores the archive in a file, if its integrity is correct.
func (c Config) download(ctx context.Context, name string) (err error) {
	address := fmt.Sprintf("%s/@embedded-postgres/%s/-/%[2]s-%s.tgz", c.Registry, c.Archive.Name, c.Archive.Version)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = answerTimeout
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, response.Status)
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha512.New()
	body := &counter{from: io.LimitReader(response.Body, maxArchive), total: response.ContentLength,
		show: c.Progress, stalled: time.AfterFunc(answerTimeout, func() { cancel(errStalled) })}
	defer body.stalled.Stop()
	if _, err := io.Copy(io.MultiWriter(file, hash), body); err != nil {
		return fmt.Errorf("%s: %w", address, cmp.Or(context.Cause(ctx), err))
	}
	if have := "sha512-" + base64.StdEncoding.EncodeToString(hash.Sum(nil)); have != c.Archive.Integrity {
		return fmt.Errorf("the integrity of %s is %s, must be %s", address, have, c.Archive.Integrity)
	}
	return nil
}

// counter reports how much of a body has been read.
type counter struct {
	from        io.Reader
	done, total int64
	show        func(done, total int64)
	stalled     *time.Timer // ends a body that delivers nothing
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.done += int64(n)
	if n > 0 {
		c.stalled.Reset(answerTimeout)
	}
	if c.show != nil && n > 0 {
		c.show(c.done, c.total)
	}
	return n, err
}
