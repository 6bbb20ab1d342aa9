package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/post"
	"github.com/taskledger/taskledger/internal/secret"
	"github.com/taskledger/taskledger/internal/settings"
	"github.com/taskledger/taskledger/internal/signature"
	"github.com/taskledger/taskledger/ledger"
)

const (
	defaultTimeout = 10 * time.Second
	maxTimeout     = time.Minute
)

// Endpoint is an HTTP server that receives signed requests. Its address must be public, or in Allow.
type Endpoint struct {
	URL string `json:"url"` // https or http
	// SecretFile names a file, and SecretEnv an environment variable, that contains the secret of the signature. One
	// is required. A secret is whsec_ followed by base64 of 24 to 64 random bytes. To rotate it, list both secrets,
	// separated by white space: each request is signed with both.
	SecretFile string `json:"secret_file"`
	SecretEnv  string `json:"secret_env"`

	Timeout settings.Duration `json:"timeout"` // of a request with its answer, at most 1 min. Default: 10s.
	// Allow lists ranges in CIDR notation that are allowed in addition to public addresses. Default: none.
	Allow []netip.Prefix `json:"allow"`
}

// Validate reports every fault at once, each an [*ledger.InvalidError] with the name of the field. It reads the secret,
// and opens no connection.
func (e Endpoint) Validate() error { return errors.Join(e.faults()...) }

func (e Endpoint) faults() (faults []error) {
	fault := func(field, value, rule string, a ...any) {
		faults = append(faults, &ledger.InvalidError{Field: field, Value: value, Rule: fmt.Sprintf(rule, a...)})
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		fault("url", "", "must be an http or https URL without a user") // its value may contain a token
	} else if err := post.CheckHost(u.Hostname(), e.Allow); err != nil {
		fault("url", "", "%s", err)
	}
	faults = append(faults, secret.Faults("secret", e.SecretFile, e.SecretEnv)...)
	if text, err := secret.Read(e.SecretFile, e.SecretEnv); e.SecretFile+e.SecretEnv == "" {
		fault("secret_file", "", "secret_file or secret_env is required: it signs the requests")
	} else if err == nil && text != "" {
		if _, err := signature.Keys(text); err != nil {
			fault("secret_file", "", "%s", err)
		}
	}
	if t := time.Duration(e.Timeout); t < 0 || t > maxTimeout {
		fault("timeout", t.String(), "must be between 1ms and %s", maxTimeout)
	}
	return faults
}

// Message is the content of a request, in the format of Standard Webhooks.
type Message struct {
	ID   string    `json:"-"`    // the header Webhook-Id, the same each time the message is sent; without dots
	Type string    `json:"type"` // words joined by dots
	At   time.Time `json:"timestamp"`
	Data any       `json:"data"`
}

// Send sends a message in one request and returns nil if the answer is 2xx. It reads the secret for each request,
// follows no redirect and uses no proxy. No error contains the URL, because its path may be a secret.
func (e Endpoint) Send(ctx context.Context, m Message) error {
	s := e.sender(1)
	defer s.client.Close()
	return s.send(ctx, m)
}

// sender returns a sender that keeps up to n connections open between requests.
func (e Endpoint) sender(n int) *sender {
	if e.Timeout == 0 {
		e.Timeout = settings.Duration(defaultTimeout)
	}
	return &sender{endpoint: e, client: post.New(post.Config{
		Timeout: time.Duration(e.Timeout), Allow: e.Allow, MaxConns: n,
	})}
}

// sender sends messages to an endpoint. It is safe for concurrent use.
type sender struct {
	endpoint Endpoint
	client   *post.Client
}

// send is [Endpoint.Send]. The error of an answer other than 2xx is a [*post.StatusError].
func (s *sender) send(ctx context.Context, m Message) error {
	_, err := s.exchange(ctx, m, 0)
	return err
}

// exchange is send, and returns the answer with a body of at most limit bytes.
func (s *sender) exchange(ctx context.Context, m Message, limit int) (post.Reply, error) {
	text, err := secret.Read(s.endpoint.SecretFile, s.endpoint.SecretEnv)
	if err != nil {
		return post.Reply{}, fmt.Errorf("secret: %w", err)
	}
	keys, err := signature.Keys(text)
	if err != nil {
		return post.Reply{}, err
	}
	m.At = m.At.UTC()
	body, err := json.Marshal(m)
	if err != nil {
		return post.Reply{}, err
	}
	now := time.Now()
	header := http.Header{}
	header.Set(signature.HeaderID, m.ID)
	header.Set(signature.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	header.Set(signature.HeaderSignature, signature.All(keys, m.ID, now, body))
	return s.client.Exchange(ctx, s.endpoint.URL, header, body, limit)
}
