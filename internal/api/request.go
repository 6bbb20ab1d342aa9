package api

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/printable"
	"github.com/taskledger/taskledger/internal/strictjson"
	"github.com/taskledger/taskledger/ledger"
)

// decode reads the body of a request, of at most limit bytes, into v, a pointer to a struct. If isOptional is set, an
// empty body counts as an empty object.
func (h *Handler) decode(w http.ResponseWriter, r *http.Request, limit int64, isOptional bool, v any) error {
	body, err := h.readBody(w, r, limit)
	switch {
	case err != nil:
		return err
	case len(body) == 0 && isOptional:
		return nil
	case len(body) == 0:
		return invalid("body", "must be a JSON object, got no bytes")
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return problem(codeMediaType,
			"the body must be application/json, got "+printable.Short(r.Header.Get("Content-Type"), 80))
	}
	return decodeObject(bytes.TrimPrefix(body, []byte("\ufeff")), v)
}

// readBody returns the body of a request after decompression.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var from io.Reader = http.MaxBytesReader(w, r.Body, limit)
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		zipped, err := gzip.NewReader(from)
		if err != nil {
			return nil, h.bodyError(err)
		}
		from = http.MaxBytesReader(w, zipped, limit)
	default:
		return nil, problem(codeMediaType, "the encoding must be gzip or none, got "+printable.Short(encoding, 80))
	}
	body, err := io.ReadAll(from)
	if err == nil { // the server reads on while the request waits, to notice that the client goes
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	return body, h.bodyError(err)
}

// bodyError returns the problem of an error of reading a body.
func (h *Handler) bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil, errors.As(err, &tooLarge):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem(codeSlow, fmt.Sprintf("the body did not come within %s", h.config.bounds.read))
	}
	return invalid("body", "cannot be read: %s", printable.Text(err.Error()))
}

// decodeObject decodes a JSON object into the struct that v points to. The decoder checks its members one by one and
// keeps none of them, since a small body may have millions after decompression.
func decodeObject(text []byte, v any) error {
	if begin := bytes.TrimLeft(text, " \t\r\n"); len(begin) > 0 && begin[0] != '{' {
		return invalid("body", "must be a JSON object")
	}
	if err := strictjson.Unmarshal(text, v); err != nil {
		return cmp.Or(timeError(text, reflect.TypeOf(v).Elem()), jsonError(err))
	}
	return zeroError(text, reflect.ValueOf(v).Elem())
}

// zeroError returns the problem of the first member whose value would count as missing: a time that is Go's zero time,
// or a data_version of 0. A member with null is missing. Names may contain escapes.
func zeroError(text []byte, object reflect.Value) error {
	for field, value := range object.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		at, isTime := value.Interface().(time.Time)
		isZero := isTime && at.IsZero() || name == "data_version" && value.IsZero()
		if !isZero || !bytes.Contains(text, []byte(name)) && !bytes.Contains(text, []byte(`\u`)) {
			continue
		}
		switch member := strictjson.Member(text, name); {
		case member == nil || string(member) == "null":
		case isTime:
			return invalid(name, "must be a time after the year 1, got %s", printable.Short(string(member), 80))
		default:
			return invalid(name, "must be between 1 and 32767")
		}
	}
	return nil
}

// timeError returns the problem of the first member that must be a time and is not, because the JSON decoder's error
// does not name it. Members are named like the fields of t.
func timeError(text []byte, t reflect.Type) error {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		member := strictjson.Member(text, name)
		if member != nil && field.Type == reflect.TypeFor[time.Time]() && new(time.Time).UnmarshalJSON(member) != nil {
			return invalid(name, "must be a time such as 2030-01-31T17:00:00Z, got %s",
				printable.Short(string(member), 80))
		}
	}
	return nil
}

// jsonError returns the problem of an error of the JSON decoder.
func jsonError(err error) error {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) && mismatch.Field != "" {
		return invalid(strictjson.FieldName(mismatch), "must not be a JSON %s", printable.Short(mismatch.Value, 80))
	}
	var field *ledger.InvalidError
	var known *client.Problem
	if errors.As(err, &field) || errors.As(err, &known) {
		return err
	}
	var wrong *strictjson.Error
	if errors.As(err, &wrong) {
		return invalid(cmp.Or(printable.Short(wrong.Field, 80), "body"), "%s", wrong.Rule)
	}
	return invalid("body", "must be JSON: %s", printable.Text(strings.TrimPrefix(err.Error(), "json: ")))
}

// key returns the key in the path of a request, if the caller may use it. The kind need not be valid: the owner of the
// schema may have inserted it.
func key(r *http.Request, c *caller, bizID string) (ledger.Key, error) {
	k := ledger.Key{Kind: ledger.Kind(r.PathValue("kind")), BizID: ledger.BizID(bizID)}
	if bizID == slash {
		k.BizID = "/"
	}
	if err := k.ValidateStored(); err != nil {
		return k, err
	}
	if !c.mayUse(k.Kind) {
		return k, c.refuseKind(k.Kind)
	}
	return k, nil
}

// query holds the parameters of a request. Its methods record the first fault.
type query struct {
	values url.Values
	err    error
}

// parseQuery returns the parameters of a request, which must have these names.
func parseQuery(r *http.Request, names ...string) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.err = invalid("query", "%s", printable.Text(err.Error()))
	}
	for name, all := range values {
		switch {
		case !slices.Contains(names, name):
			allowed := strings.Join(names, ", ")
			if allowed == "" {
				allowed = "none"
			}
			q.fault(printable.Short(name, 80), "is not a parameter; there are: %s", allowed)
		case len(all) > 1 && name != "kind" && name != "type":
			q.fault(name, "must be given once")
		case len(all) > 100:
			q.fault(name, "must be given at most 100 times")
		}
		for _, value := range all {
			if value == "" && name != "after" && name != "reason" { // "" is the first page, and no reason
				q.fault(name, "must not be empty; leave it out for its default")
			}
			if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
				q.fault(name, "must be UTF-8 without NUL")
			}
		}
	}
	return q
}

func (q *query) fault(field, format string, a ...any) {
	if q.err == nil {
		q.err = invalid(field, format, a...)
	}
}

// number returns a parameter between two bounds, fallback if it is missing.
func (q *query) number(name string, fallback, least, most int64) int64 {
	if !q.values.Has(name) {
		return fallback
	}
	text := q.values.Get(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		q.fault(name, "must be a whole number from %d to %d, got %s", least, most, printable.Short(text, 80))
	}
	return n
}

// limit returns the maximum number of items of a page.
func (q *query) limit() int { return int(q.number("limit", 100, 1, maxList)) }

// time returns a parameter in the format of RFC 3339, fallback if it is missing.
func (q *query) time(name string, fallback time.Time) time.Time {
	text := q.values.Get(name)
	if text == "" {
		return fallback
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 1970 || t.Year() > 9998 {
		q.fault(name, "must be a time as 2026-12-24T18:00:00Z, got %s", printable.Short(text, 80))
	}
	return t
}

// seconds returns a number of seconds as a duration, or a fault of the field.
func seconds(field string, n float64) (time.Duration, error) {
	const most = 366 * 24 * 3600
	if n < 0 || n > most {
		return 0, invalid(field, "must be between 0 and %d seconds", most)
	}
	return time.Duration(n * float64(time.Second)).Round(time.Microsecond), nil
}
