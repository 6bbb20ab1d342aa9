// Package openapi checks the answers of the HTTP API against its document. It is apart from package api because of the
// module that it needs.
package openapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/taskledger/taskledger/internal/api"
)

// exchange is a request of the tests of package api, and its answer, as they record it.
type exchange struct {
	Test    string      `json:"test"`
	Method  string      `json:"method"`
	URL     string      `json:"url"`
	Request http.Header `json:"request"`
	Status  int         `json:"status"`
	Header  http.Header `json:"header"`
	Body    []byte      `json:"body"`
}

// minExchanges is fewer than the tests of package api have. Hundreds are random.
const minExchanges = 1000

// Every answer in the tests of package api is one that the document has, with its headers and its body.
func TestAnswersMatchTheDocument(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	all := recordExchanges(t)
	if len(all) < minExchanges {
		t.Errorf("%d exchanges, want at least %d", len(all), minExchanges)
	}
	matched := 0
	for _, e := range all {
		isDocumented, err := d.check(t.Context(), e)
		if err != nil {
			t.Errorf("%s: %s %s: %d %.1000s: %v", e.Test, e.Method, e.URL, e.Status, e.Body, err)
		}
		if isDocumented {
			matched++
		}
	}
	t.Logf("%d exchanges, %d of calls in the document", len(all), matched)
	if matched < minExchanges/2 {
		t.Errorf("the document has the calls of only %d exchanges", matched)
	}
}

// Answers that the document does not have are refused.
func TestOtherAnswersDoNotMatch(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	answer := http.Header{"Content-Type": {"application/json"}}
	for name, e := range map[string]exchange{
		"a call": {Method: http.MethodGet, URL: "/v1/nothing", Status: http.StatusOK, Header: answer,
			Body: []byte("{}")},
		"a body": {Method: http.MethodGet, URL: "/v1/tasks/a.b/1", Status: http.StatusOK, Header: answer,
			Body: []byte(`{"kind": 5}`)},
		"a status": {Method: http.MethodGet, URL: "/v1/tasks/a.b/1", Status: http.StatusAccepted, Header: answer,
			Body: []byte(`{}`)},
	} {
		if _, err := d.check(t.Context(), e); err == nil {
			t.Errorf("%s that the document does not have matches it", name)
		}
	}
}

// recordExchanges runs the tests of package api, which must pass, and returns their exchanges.
func recordExchanges(t *testing.T) (all []exchange) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "exchanges")
	run := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout", "30m", ".")
	run.Dir, run.Env = "../../api", append(os.Environ(), "TASKLEDGER_API_EXCHANGES="+name)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for decoder := json.NewDecoder(bufio.NewReader(f)); ; {
		var e exchange
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
}

// document is the description of the API.
type document struct {
	*openapi3.T
	paths []documentedPath
}

type documentedPath struct {
	path    string
	pattern *regexp.Regexp // of the escaped path
	item    *openapi3.PathItem
}

// readDocument returns the document, which must be valid.
func readDocument(t *testing.T) *document {
	t.Helper()
	loaded, err := openapi3.NewLoader().LoadFromData(api.Document())
	if err != nil {
		t.Fatal(err)
	}
	if err := loaded.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := &document{T: loaded}
	parameter := regexp.MustCompile(`\\\{\w+\\\}`)
	for _, path := range loaded.Paths.InMatchingOrder() {
		pattern := regexp.MustCompile("^" + parameter.ReplaceAllString(regexp.QuoteMeta(path), `[^/]+`) + "$")
		d.paths = append(d.paths, documentedPath{path, pattern, loaded.Paths.Value(path)})
	}
	return d
}

// check returns an error if the document does not have an answer, and whether it has the call.
func (d *document) check(ctx context.Context, e exchange) (isDocumented bool, err error) {
	r, err := http.NewRequestWithContext(ctx, e.Method, "http://api.example"+e.URL, nil)
	if err != nil {
		return false, err
	}
	r.Header = e.Request
	route := d.find(r)
	switch {
	case route == nil && e.Status < http.StatusBadRequest:
		return false, errors.New("the document does not have the call")
	case route == nil:
		return false, nil
	case e.Status == http.StatusNotModified, strings.HasPrefix(e.Header.Get("Content-Type"), "text/"):
		return true, nil
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, Route: route},
		Status:                 e.Status, Header: e.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	input.SetBodyBytes(e.Body)
	return true, openapi3filter.ValidateResponse(ctx, input)
}

// find returns the call of a request, or nil.
func (d *document) find(r *http.Request) *routers.Route {
	var best *routers.Route
	for _, p := range d.paths {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		operation := p.item.GetOperation(method)
		if operation == nil || !p.pattern.MatchString(r.URL.EscapedPath()) {
			continue
		}
		if best == nil || len(p.path) > len(best.Path) {
			best = &routers.Route{Spec: d.T, Path: p.path, PathItem: p.item, Method: method, Operation: operation}
		}
	}
	return best
}
