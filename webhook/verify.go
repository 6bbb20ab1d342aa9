// Package webhook verifies requests of taskledger's webhooks, signed by Standard Webhooks
// (https://www.standardwebhooks.com), for a receiver in Go. docs/webhooks.md describes them.
package webhook

import (
	"crypto/hmac"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/signature"
)

// HeaderID is the header that contains the id of the message: the same for each attempt, and for each delivery of an
// event. A receiver compares it to detect repetitions.
const HeaderID = "Webhook-Id"

// maxAge is the greatest difference between the clocks of sender and receiver that Verify accepts.
const maxAge = 5 * time.Minute

// Verify returns the id of a request if its signature was made with one of the secrets, and if it was sent in the last
// 5 minutes. body is the body as it was received. secrets contains one or several secrets, separated by white space. A
// receiver answers 401 to a request with an error.
func Verify(header http.Header, body []byte, secrets string) (id string, err error) {
	keys, err := signature.Keys(secrets)
	if err != nil {
		return "", err
	}
	id, text := header.Get(HeaderID), header.Get(signature.HeaderTimestamp)
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return "", fmt.Errorf("%s must be seconds since 1970, got %q", signature.HeaderTimestamp, text)
	}
	at := time.Unix(seconds, 0)
	if age := time.Since(at); age.Abs() > maxAge {
		return "", fmt.Errorf("%s must differ from this clock by at most %s, got %s",
			signature.HeaderTimestamp, maxAge, age)
	}
	for given := range strings.FieldsSeq(header.Get(signature.HeaderSignature)) {
		for _, key := range keys {
			if hmac.Equal([]byte(given), []byte(signature.Sign(key, id, at, body))) {
				return id, nil
			}
		}
	}
	return "", fmt.Errorf("%s must match one of the secrets", signature.HeaderSignature)
}
