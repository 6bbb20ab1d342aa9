package workers

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// fence describes an attempt that a gateway has given to a worker. Sealed, it is [remote.AttemptRef].Fence: another
// process accepts the attempt's outcome although it knows nothing else about it. Only a caller with the same name can
// use it.
type fence struct {
	ledger.Key
	attempt    ledger.Attempt
	version    ledger.Version // of the task's last event before the attempt
	offered    ledger.Version // of the event that made the task available
	offeredAt  time.Time      // when that was recorded: a restored ledger may have another event of this version
	isOnce     bool           // AtMostOnce
	worker     string         // the id that its events have as actor
	session    string         // hash of the session's name
	number     string         // identifies the attempt among all of the session
	begun      time.Time
	until      time.Time // it is over then; zero: without a limit
	isDeadline bool      // until is the task's deadline
}

// fenceParts is the number of lines in the text of a fence.
const fenceParts = 12

// macSize is the length of a fence's code: an attacker would need 2^127 requests.
const macSize = 16

// seal returns the text of the fence for its caller: lines in base64, a dot, and an authentication code.
func (f fence) seal(key []byte, caller string) string {
	flags := ""
	if f.isOnce {
		flags += "o"
	}
	if f.isDeadline {
		flags += "d"
	}
	until := int64(0)
	if !f.until.IsZero() {
		until = f.until.UnixMilli()
	}
	text := strings.Join([]string{
		f.number, strings.TrimPrefix(f.worker, caller+"-"), f.session, strconv.Itoa(int(f.attempt)),
		strconv.Itoa(int(f.version)), strconv.FormatInt(f.begun.UnixMilli(), 36), strconv.FormatInt(until, 36), flags,
		strconv.Itoa(int(f.offered)), strconv.FormatInt(f.offeredAt.UnixMicro(), 36),
		string(f.Kind), string(f.BizID),
	}, "\n")
	return base64.RawURLEncoding.EncodeToString([]byte(text)) + "." +
		base64.RawURLEncoding.EncodeToString(mac(key, caller, text))
}

// openFence returns the fence of a text that seal has returned for the same caller, or false.
func openFence(key []byte, caller, sealed string) (f fence, ok bool) {
	body, code, _ := strings.Cut(sealed, ".")
	text, err1 := base64.RawURLEncoding.DecodeString(body)
	got, err2 := base64.RawURLEncoding.DecodeString(code)
	if err1 != nil || err2 != nil || subtle.ConstantTimeCompare(got, mac(key, caller, string(text))) != 1 {
		return f, false
	}
	parts := strings.SplitN(string(text), "\n", fenceParts)
	if len(parts) != fenceParts {
		return f, false
	}
	attempt, err1 := strconv.Atoi(parts[3])
	version, err2 := strconv.Atoi(parts[4])
	begun, err3 := strconv.ParseInt(parts[5], 36, 64)
	until, err4 := strconv.ParseInt(parts[6], 36, 64)
	offered, err5 := strconv.Atoi(parts[8])
	offeredAt, err6 := strconv.ParseInt(parts[9], 36, 64)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return f, false
	}
	f = fence{
		Key:     ledger.Key{Kind: ledger.Kind(parts[10]), BizID: ledger.BizID(parts[11])},
		attempt: ledger.Attempt(attempt), version: ledger.Version(version), number: parts[0],
		offered: ledger.Version(offered), offeredAt: time.UnixMicro(offeredAt),
		worker: caller + "-" + parts[1], session: parts[2], begun: time.UnixMilli(begun),
		isOnce: strings.Contains(parts[7], "o"), isDeadline: strings.Contains(parts[7], "d"),
	}
	if until != 0 {
		f.until = time.UnixMilli(until)
	}
	return f, true
}

// mac returns the code that authenticates a text for a caller.
func mac(key []byte, caller, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(h, "taskledger.fence 1 %d %s\n%s", len(caller), caller, text)
	return h.Sum(nil)[:macSize]
}

// sessionHash returns a short text that differs for each session of a caller.
func sessionHash(session string) string {
	sum := sha256.Sum256([]byte(session))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// isOver reports whether the time of the attempt is up.
func (f fence) isOver() bool { return !f.until.IsZero() && time.Now().After(f.until) }
