package alarm

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/taskledger/taskledger/internal/post"
	"github.com/taskledger/taskledger/internal/secret"
)

// Headers of a webhook's requests.
const (
	HeaderAlarm     = "Taskledger-Alarm"     // the alarm's biz_id
	HeaderSignature = "Taskledger-Signature" // see [Sign]
)

// Webhook is an HTTP server that gets POST requests, each with a [Message] as JSON.
type Webhook struct {
	URL        string `json:"url"`         // http or https
	SecretFile string `json:"secret_file"` // file with the key of the signature,
	SecretEnv  string `json:"secret_env"`  // or environment variable with it; one is required
}

func (w *Webhook) faults() []error {
	faults := secret.Faults("secret", w.SecretFile, w.SecretEnv)
	if w.SecretFile+w.SecretEnv == "" {
		faults = append(faults,
			invalid("secret_file", "", "secret_file or secret_env is required: it signs the requests"))
	}
	if u, err := url.Parse(w.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		faults = append(faults, invalid("url", "", "must be an http or https URL")) // its value may contain a token
	}
	return faults
}

// Sign returns the value of [HeaderSignature]: "t=<seconds since 1970>,v1=<hex>". hex is the HMAC-SHA256, with the
// secret, of the seconds, a dot and the body. A receiver computes the same, compares in constant time, and refuses
// requests that are some minutes old.
func Sign(secret string, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// webhookClient connects to any address: the operator of the ledger configures the receivers of alarms.
var webhookClient = post.New(post.Config{Timeout: Timeout})

func (w *Webhook) send(ctx context.Context, m Message) error {
	key, err := secret.Read(w.SecretFile, w.SecretEnv)
	if err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	if key == "" {
		return errors.New("secret must not be empty")
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	header := http.Header{}
	header.Set(HeaderAlarm, m.Alarm)
	header.Set(HeaderSignature, Sign(key, time.Now(), body))
	return webhookClient.Send(ctx, w.URL, header, body)
}

// maxReply is the greatest part of a receiver's reply or output that is recorded, in bytes.
const maxReply = post.MaxReply
