package api

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/taskledger/taskledger/ledger"
)

// Sizes from which on a body is compressed. The answers to POST are many, small and soon out of use: compressing the
// tasks of workers would cost server and client more than their transport.
const (
	leastZipped     = 1 << 10
	leastZippedPost = 256 << 10
)

var zippers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// writeJSON answers a request with a value.
func (h *Handler) writeJSON(w http.ResponseWriter, r *http.Request, status int, v any) error {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	h.write(w, r, status, "application/json", body.Bytes())
	return nil
}

// write answers a request with a body, compressed if the client accepts that.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, status int, mediaType string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", mediaType)
	header.Add("Vary", "Accept-Encoding")
	least := leastZipped
	if r.Method == http.MethodPost {
		least = leastZippedPost
	}
	if len(body) >= least && acceptsGzip(r) {
		var zipped bytes.Buffer
		z := zippers.Get().(*gzip.Writer)
		z.Reset(&zipped)
		_, err := z.Write(body)
		if closeErr := z.Close(); err == nil && closeErr == nil {
			body = zipped.Bytes()
			header.Set("Content-Encoding", "gzip")
			setZippedTag(header)
		}
		zippers.Put(z)
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(h.config.bounds.write)) // not every server has deadlines
	end := func() {}
	if len(body) >= largeAnswer {
		end = h.answers.begin(len(body), func() { _ = control.SetWriteDeadline(time.Now()) })
	}
	w.WriteHeader(status)
	_, err := w.Write(body)
	if err == nil {
		err = control.Flush()
	}
	if end(); err == nil { // else the client has gone, or reads too slowly
		_ = control.SetWriteDeadline(time.Time{}) // the deadline is not for the connection's next answer
	}
}

// zippedSuffix ends the tags of compressed answers: a strong tag names one sequence of bytes (RFC 9110, 8.8.1). Proxies
// that compress use the same suffix.
const zippedSuffix = "-gzip"

// setZippedTag changes the ETag to the tag of the compressed answer.
func setZippedTag(header http.Header) {
	if text, isTag := strings.CutSuffix(header.Get("ETag"), `"`); isTag {
		header.Set("ETag", text+zippedSuffix+`"`)
	}
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		weight = strings.ReplaceAll(weight, " ", "")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return weight != "q=0" && !strings.HasPrefix(weight, "q=0.0")
		}
	}
	return false
}

// setVersion sets the ETag of a task.
func setVersion(w http.ResponseWriter, v ledger.Version) {
	w.Header().Set("ETag", `"`+strconv.Itoa(int(v))+`"`)
	w.Header().Set("Cache-Control", "private, no-cache")
}
