// Package signature signs requests by Standard Webhooks (https://www.standardwebhooks.com).
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of a request.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp" // of the attempt, in seconds since 1970
	HeaderSignature = "Webhook-Signature" // one or several, separated by spaces, see Sign
)

const (
	secretPrefix = "whsec_"
	minKey       = 24 // bytes, by Standard Webhooks
	maxKey       = 64
	maxSecrets   = 8 // of an endpoint
)

// parseSecret returns the key of a secret.
func parseSecret(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(key) < minKey || len(key) > maxKey {
		return nil, errors.New("secret must be whsec_ and base64 of 24 to 64 bytes: " +
			`echo "whsec_$(head -c 32 /dev/urandom | base64)"`) // without the secret
	}
	return key, nil
}

// Keys returns the keys of secrets with white space between them.
func Keys(text string) (keys [][]byte, err error) {
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

// All returns the signatures by each of the keys, separated by spaces: by Standard Webhooks one of them must match.
func All(keys [][]byte, id string, at time.Time, body []byte) string {
	signatures := make([]string, len(keys))
	for i, key := range keys {
		signatures[i] = Sign(key, id, at, body)
	}
	return strings.Join(signatures, " ")
}

// Sign returns v1, a comma, and base64 of the HMAC-SHA256, with the key, of the id, the seconds and the body, joined by
// dots.
func Sign(key []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
