package alarm

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/printable"
)

// Headers of a webhook's requests.
const (
	HeaderAlarm     = "Taskledger-Alarm"     // the alarm's biz_id
	HeaderSignature = "Taskledger-Signature" // see [Sign]
)

// Webhook is a receiver of POST requests, each with a [Message] as JSON.
type Webhook struct {
	URL        string `json:"url"`         // http or https
	SecretFile string `json:"secret_file"` // key of the signature; this one
	SecretEnv  string `json:"secret_env"`  // or this variable; one is required
}

func (w *Webhook) faults() []error {
	faults := secretFaults("secret", w.SecretFile, w.SecretEnv)
	if w.SecretFile+w.SecretEnv == "" {
		faults = append(faults, invalid("secret_file", "", "must be given, or secret_env: requests are signed with it"))
	}
	if u, err := url.Parse(w.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		faults = append(faults, invalid("url", "", "must be an address with http or https")) // it may hold a token
	}
	return faults
}

// Sign returns the value of [HeaderSignature]: "t=<seconds since 1970>,v1=<hex>", of which hex is
// HMAC-SHA256 with the secret over the seconds, a dot and the body. Who receives it computes the
// same, compares in constant time, and refuses what is some minutes old.
func Sign(secret string, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// webhookClient follows no redirects: a signed message goes where it is meant to, or nowhere.
var webhookClient = &http.Client{
	Timeout:       Timeout,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (w *Webhook) send(ctx context.Context, m Message) error {
	key, err := secret(w.SecretFile, w.SecretEnv)
	if err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	if key == "" {
		return errors.New("the secret is empty")
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address cannot be read") // err would show it
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "taskledger")
	request.Header.Set(HeaderAlarm, m.Alarm)
	request.Header.Set(HeaderSignature, Sign(key, time.Now(), body))
	response, err := webhookClient.Do(request)
	if err != nil {
		var failed *url.Error // its text holds the address
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return fmt.Errorf("post: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 == 2 {
		return nil
	}
	said, _ := io.ReadAll(io.LimitReader(response.Body, maxSaid)) // as much as there is
	return fmt.Errorf("answered %d %s", response.StatusCode, printable.Text(strings.TrimSpace(string(said))))
}

// maxSaid is how much is recorded of what a receiver says that refuses a message.
const maxSaid = 1 << 10
