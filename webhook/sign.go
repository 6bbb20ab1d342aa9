package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// HeaderID is the header that contains the id of the message: the same for each attempt, and for each delivery of an
// event. A receiver compares it to detect repetitions.
const HeaderID = "Webhook-Id"

const (
	headerTimestamp = "Webhook-Timestamp" // of the attempt, in seconds since 1970
	headerSignature = "Webhook-Signature" // one or several, separated by spaces, see sign
)

const (
	secretPrefix = "whsec_"
	minKey       = 24 // bytes, by Standard Webhooks
	maxKey       = 64
	maxSecrets   = 8 // of an endpoint

	// maxAge is the greatest difference between the clocks of sender and receiver that Verify accepts.
	maxAge = 5 * time.Minute
)

// Verify returns the id of a request if its signature was made with one of the secrets, and if it was sent in the last
// 5 minutes. body is the body as it was received. secrets contains one or several secrets, separated by white space. A
// receiver answers 401 to a request with an error.
func Verify(header http.Header, body []byte, secrets string) (id string, err error) {
	keys, err := parseSecrets(secrets)
	if err != nil {
		return "", err
	}
	id, text := header.Get(HeaderID), header.Get(headerTimestamp)
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return "", fmt.Errorf("%s must be seconds since 1970, got %q", headerTimestamp, text)
	}
	at := time.Unix(seconds, 0)
	if age := time.Since(at); age.Abs() > maxAge {
		return "", fmt.Errorf("%s must differ from this clock by at most %s, got %s", headerTimestamp, maxAge, age)
	}
	for signature := range strings.FieldsSeq(header.Get(headerSignature)) {
		for _, key := range keys {
			if hmac.Equal([]byte(signature), []byte(sign(key, id, at, body))) {
				return id, nil
			}
		}
	}
	return "", fmt.Errorf("%s must match one of the secrets", headerSignature)
}

// parseSecret returns the key of a secret.
func parseSecret(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(key) < minKey || len(key) > maxKey {
		return nil, errors.New("secret must be whsec_ and base64 of 24 to 64 bytes: " +
			`echo "whsec_$(head -c 32 /dev/urandom | base64)"`) // without the secret
	}
	return key, nil
}

// parseSecrets returns the keys of secrets with white space between them.
func parseSecrets(text string) (keys [][]byte, err error) {
	secrets := strings.Fields(text)
	if len(secrets) > maxSecrets {
		return nil, fmt.Errorf("secrets must be at most %d, got %d", maxSecrets, len(secrets))
	}
	for _, s := range secrets {
		key, err := parseSecret(s)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("secret must not be empty")
	}
	return keys, nil
}

// signAll returns the signatures by each of the keys, separated by spaces: by Standard Webhooks one of them must match.
func signAll(keys [][]byte, id string, at time.Time, body []byte) string {
	signatures := make([]string, len(keys))
	for i, key := range keys {
		signatures[i] = sign(key, id, at, body)
	}
	return strings.Join(signatures, " ")
}

// sign returns v1, a comma, and base64 of the HMAC-SHA256, with the key, of the id, the seconds and the body, joined by
// dots.
func sign(key []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
