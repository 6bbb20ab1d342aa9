// Package post sends messages to HTTP servers that a configuration names: the receivers of webhooks. It connects to
// public addresses only, unless others are allowed.
//
// A request follows no redirect and uses no proxy, because a message goes to the configured address alone. An answer is
// read up to a limit. Errors never contain the URL, because its path may be a secret.
package post

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
)

const (
	// MaxReply is the greatest part of a receiver's answer that is recorded, in bytes.
	MaxReply = 1 << 10
	// MaxRetryAfter is the greatest delay that a receiver can ask for. A longer one counts as this one.
	MaxRetryAfter = 24 * time.Hour

	maxHeader   = 16 << 10
	idleTimeout = 30 * time.Second
)

// Config configures a [Client].
type Config struct {
	Timeout time.Duration // of a request with its answer. Required.
	// Allow lists addresses that are allowed in addition to public ones. Each connection is checked when it is made,
	// after the name was resolved.
	Allow    []netip.Prefix
	MaxConns int           // connections to a receiver at a time. Default: no limit.
	Resolver *net.Resolver // Default: the system's.
}

// Client sends messages. It is safe for concurrent use.
type Client struct{ http *http.Client }

// New returns a client.
func New(c Config) *Client {
	dialer := &net.Dialer{Timeout: c.Timeout, Resolver: c.Resolver, Control: c.check}
	return &Client{http: &http.Client{
		Timeout:       c.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxConnsPerHost: c.MaxConns,
			IdleConnTimeout: idleTimeout, TLSHandshakeTimeout: c.Timeout, MaxResponseHeaderBytes: maxHeader,
			DisableCompression: true,
		},
	}}
}

// Close closes the connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// StatusError is the error of an answer other than 2xx.
type StatusError struct {
	Status     int
	Reply      string        // its beginning, printable
	RetryAfter time.Duration // at most MaxRetryAfter; 0: the answer has none
}

func (e *StatusError) Error() string {
	if e.Reply == "" {
		return fmt.Sprintf("HTTP status %d", e.Status)
	}
	return fmt.Sprintf("HTTP status %d: %s", e.Status, e.Reply)
}

// Send sends a message and returns nil if the answer is 2xx, else a [*StatusError], an [*AddressError], or the error of
// the connection.
func (c *Client) Send(ctx context.Context, address string, header http.Header, body []byte) error {
	_, err := c.Exchange(ctx, address, header, body, 0)
	return err
}

// Reply is a 2xx answer. Body is nil if it has more bytes than were to be read.
type Reply struct {
	Status int
	Body   []byte
}

// Exchange is [Client.Send], and returns the answer with a body of at most limit bytes. With a limit, a body that ends
// early or does not arrive in time is an error, unless the status is 202.
func (c *Client) Exchange(
	ctx context.Context, address string, header http.Header, body []byte, limit int,
) (Reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return Reply{}, errors.New("invalid URL") // err contains it
	}
	request.Header = header.Clone()
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "taskledger")
	response, err := c.http.Do(request)
	if err != nil {
		var failed *url.Error // its text contains the URL
		if errors.As(err, &failed) {
			err = failed.Err
			if failed.Timeout() && ctx.Err() == nil {
				err = fmt.Errorf("no answer within %s: %w", c.http.Timeout, err)
			}
		}
		return Reply{}, fmt.Errorf("post: %w", err)
	}
	defer response.Body.Close()
	isSuccess := response.StatusCode/100 == 2
	most := int64(MaxReply)
	if isSuccess && limit > 0 {
		most = int64(limit) + 1
	}
	reply, err := io.ReadAll(io.LimitReader(response.Body, most)) // as much as arrives
	if isSuccess {
		answer := Reply{Status: response.StatusCode}
		if err != nil && limit > 0 && answer.Status != http.StatusAccepted {
			return Reply{}, fmt.Errorf("post: the answer is incomplete: %w", err)
		}
		if err == nil && len(reply) <= limit {
			answer.Body = reply
		}
		return answer, nil
	}
	return Reply{}, &StatusError{
		Status: response.StatusCode, Reply: printable.Text(strings.TrimSpace(string(reply))),
		RetryAfter: retryAfter(response.Header),
	}
}

// retryAfter returns the time of Retry-After by RFC 9110, in seconds or as a date, at most [MaxRetryAfter]. A date is
// compared with the answer's date, because the clocks may differ.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(MaxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(0, min(at.Sub(now), MaxRetryAfter))
}
