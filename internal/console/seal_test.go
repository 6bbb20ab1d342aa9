package console_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/taskledger/taskledger/internal/api"
	"github.com/taskledger/taskledger/internal/seal"
	"github.com/taskledger/taskledger/ledger"
	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// The page of a task shows whether its events are sealed, and a proof that a reader can check by hand. Neither the salt
// nor a hidden value is on it.
func TestSealOfATask(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledger.Key{Kind: "coupon.send", BizID: `<b>"1"</b>`}
	for _, id := range []string{"a", "b", "c"} {
		ledgertest.Enqueue(t, s.db, ledger.Key{Kind: "coupon.send", BizID: ledger.BizID(id)}, `{}`)
	}
	ledgertest.Enqueue(t, s.db, k, `{"password":"hunter2"}`)
	s.project()
	b := s.as(api.Viewer)
	path := "/task?kind=coupon.send&biz_id=%3Cb%3E%221%22%3C%2Fb%3E"
	if p := b.get(path); strings.Contains(p.body, "seal") {
		t.Errorf("the page of a ledger without a seal has one:\n%s", p.content())
	}
	result, err := seal.Run(t.Context(), ledgertest.As(t, s.db, "archiver"), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := b.get(path)
	b.want(p, http.StatusOK, "History unaltered, version 1<", "4 leaves", "proof of version 1")
	if strings.Contains(p.body, "hunter2") {
		t.Error("the page has a hidden value")
	}
	checkByHand(t, html.UnescapeString(p.body), result.Checkpoint)

	ledgertest.ExecAsOwner(t, s.db, `alter table taskledger.event disable trigger user`)
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.event set data = '{"password":"x"}' where position = 4`)
	b.want(b.get(path), http.StatusOK, "Version 1 is not the event that was sealed as leaf 3", "taskledger verify seal")
}

// The page compares the versions before the one that is shown too, and is shown if the seal is corrupt.
func TestSealOfEarlierVersions(t *testing.T) {
	t.Parallel()
	s := serve(t)
	k := ledger.Key{Kind: "coupon.send", BizID: "1"}
	ledgertest.Enqueue(t, s.db, k, `{"percent":10}`)
	ledgertest.Append(t, ledgertest.As(t, s.db, ledgertest.App), k, ledger.EventStarted, ledger.EventSucceeded)
	s.project()
	if _, err := seal.Run(t.Context(), ledgertest.As(t, s.db, "archiver"), nil); err != nil {
		t.Fatal(err)
	}
	b := s.as(api.Viewer)
	const path = "/task?kind=coupon.send&biz_id=1"
	b.want(b.get(path), http.StatusOK, "History unaltered, versions 1 to 3<")
	b.want(b.get(path+"&version=2"), http.StatusOK, "History unaltered, versions 1 to 2<")
	ledgertest.ExecAsOwner(t, s.db, `alter table taskledger.event disable trigger user`)
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.event set data = '{"percent":90}' where position = 1`)
	p := b.get(path)
	b.want(p, http.StatusOK, "Version 1 is not the event that was sealed as leaf 0", "proof of version 3")
	if strings.Contains(p.body, "History unaltered") {
		t.Error("the page calls the forged events sealed")
	}
	ledgertest.ExecAsOwner(t, s.db, `alter table taskledger.seal disable trigger seal_append_only`)
	ledgertest.ExecAsOwner(t, s.db, `update taskledger.seal set first_leaf = 1000`)
	b.want(b.get(path), http.StatusOK, "The seal cannot be read")
}

var (
	record = regexp.MustCompile(`(?s)taskledger event v1\n.*?personal [0-9a-f]{64}\n`)
	hashes = regexp.MustCompile(`(?m)^(?:<pre tabindex="0">|</pre><pre tabindex="0">)?([A-Za-z0-9+/]{43}=)$`)
)

// checkByHand computes the root of a tree of four leaves from the last record and the hashes of a page.
func checkByHand(t *testing.T, body string, c seal.Checkpoint) {
	t.Helper()
	leaf := tlog.Hash(sha256.Sum256(append([]byte{0}, record.FindString(body)...)))
	_, path, _ := strings.Cut(body, record.FindString(body))
	used := 0
	for lines := bufio.NewScanner(strings.NewReader(path)); lines.Scan(); {
		m := hashes.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		used++
		left, err := base64.StdEncoding.DecodeString(m[1])
		if err != nil {
			t.Fatal(err)
		}
		leaf = tlog.NodeHash(tlog.Hash(left), leaf) // the last leaf is always on the right
	}
	if used != 2 || leaf != c.Root {
		t.Errorf("%d hashes give the root %s, want %s", used, leaf, c.Root)
	}
}
