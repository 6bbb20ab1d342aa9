package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/taskledger/taskledger/api/client"
	"github.com/taskledger/taskledger/internal/api"
)

// The cookies: the token of the caller, and a random key of the browser for the tokens in forms.
const (
	tokenCookie = "taskledger_token"
	formCookie  = "taskledger_form"
)

// isSecure reports whether the browser speaks TLS.
func (h *Handler) isSecure(r *http.Request) bool { return r.TLS != nil || h.config.IsBehindTLS }

// cookieName returns the name of a cookie. With TLS, the prefix makes the browser refuse the cookie from pages without
// TLS, and from other hosts of the domain, which could sign the browser in as another caller. Below a path it refuses
// only the former.
func (h *Handler) cookieName(r *http.Request, name string) string {
	path := h.cookiePath(name)
	if h.isOfAll(name) {
		name += "." + h.among.name
	}
	switch {
	case !h.isSecure(r):
		return name
	case path == "/":
		return "__Host-" + name
	}
	return "__Secure-" + name
}

// isOfAll reports whether the page of ledgers reads a cookie too: then its name is that of the ledger, and its path the
// page's.
func (h *Handler) isOfAll(name string) bool { return h.among != nil && name == tokenCookie }

func (h *Handler) cookiePath(name string) string {
	if h.isOfAll(name) {
		return h.among.of.base
	}
	return h.config.Base
}

func (h *Handler) setCookie(w http.ResponseWriter, r *http.Request, name, value string) {
	c := &http.Cookie{Name: h.cookieName(r, name), Value: value, Path: h.cookiePath(name), HttpOnly: true,
		Secure: h.isSecure(r), SameSite: http.SameSiteStrictMode}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

func (h *Handler) cookie(r *http.Request, name string) string {
	c, err := r.Cookie(h.cookieName(r, name))
	if err != nil {
		return ""
	}
	return c.Value
}

// HasToken reports whether a request brings a cookie with a token, of any ledger. It reads nothing; the token may be
// unknown.
func HasToken(r *http.Request) bool {
	return slices.ContainsFunc(r.Cookies(), func(c *http.Cookie) bool {
		return c.Value != "" && strings.Contains(c.Name, tokenCookie)
	})
}

// authorized returns the request with the cookie's token as its bearer token, unless the request brings its own.
func (h *Handler) authorized(r *http.Request) *http.Request {
	token := h.cookie(r, tokenCookie)
	if token == "" || r.Header.Get("Authorization") != "" {
		return r
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// admit returns the caller of a request.
func (h *Handler) admit(r *http.Request) (api.Caller, error) {
	return h.config.API.Admit(h.authorized(r), api.Viewer)
}

// formKey returns the key of the browser, and makes it if it is missing.
func (h *Handler) formKey(w http.ResponseWriter, r *http.Request) string {
	key := h.cookie(r, formCookie)
	if len(key) < 20 {
		key = rand.Text()
		h.setCookie(w, r, formCookie, key)
	}
	return key
}

// formToken returns the token of a caller's forms. It outlives a restart of the server.
func formToken(key, callerID string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte("taskledger console\x00" + callerID))
	return hex.EncodeToString(mac.Sum(nil))
}

// admitForm admits the caller of a form that changes something. Otherwise it answers the request and returns false. If
// the caller's session has ended, it asks the caller to sign in, and then leads to the page next.
func (h *Handler) admitForm(w http.ResponseWriter, r *http.Request, next string) (c api.Caller, isAdmitted bool) {
	c, err := h.admit(r)
	if isUnauthenticated(err) {
		h.askToSignIn(w, r, http.StatusUnauthorized, signInData{Next: next,
			Problem: "Your session has ended. Nothing was changed.", Cure: "Enter a token, and try again."})
		return c, false
	}
	if err == nil {
		err = h.checkForm(w, r, c.ID())
	}
	if err != nil {
		h.fail(w, r, err)
	}
	return c, err == nil
}

// maxReason is the maximum number of bytes of a reason.
const maxReason = 1000

// formReason returns the reason of a form.
func formReason(r *http.Request, isRequired bool) (string, error) {
	reason := strings.TrimSpace(r.PostForm.Get("reason"))
	switch {
	case isRequired && reason == "":
		return "", invalid("a reason is required")
	case len(reason) > maxReason:
		return "", invalid("the reason must have at most %d bytes", maxReason)
	}
	return reason, nil
}

// checkForm reads a form. It refuses a form without the token of the browser and the caller.
func (h *Handler) checkForm(w http.ResponseWriter, r *http.Request, callerID string) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	if err := r.ParseForm(); err != nil {
		return invalid("the form cannot be read")
	}
	key := h.cookie(r, formCookie)
	want := formToken(key, callerID)
	if len(key) < 20 || !hmac.Equal([]byte(r.PostForm.Get("csrf")), []byte(want)) {
		return &failure{status: http.StatusForbidden, title: "The form is not one of this session.",
			detail: "Nothing was changed.",
			cure:   "open the page again, and send the form from there; cookies must be on"}
	}
	return nil
}

// isUnauthenticated reports whether an error means that the caller must sign in.
func isUnauthenticated(err error) bool {
	var p *client.Problem
	return errors.As(err, &p) && p.Status == http.StatusUnauthorized
}

// isLinkOfOtherSite reports whether a link on a page of another site has led to a page. Browsers leave out the cookies
// then, because they are SameSite=Strict.
func isLinkOfOtherSite(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-User") == "?1" // not when the page is loaded again
}

// loadAgain makes the browser request a page again: this time the console itself sends the request, with the cookies.
// No cookie is set meanwhile, because a new form key would invalidate the forms of open pages.
func (h *Handler) loadAgain(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = io.WriteString(w, `<!doctype html><meta charset="utf-8"><title>taskledger</title>`+
		`<meta http-equiv="refresh" content="0"><p>Load this page again.</p>`)
}

// signInData is the content of the page on which a token is entered.
type signInData struct{ Next, Problem, Cure string }

// askToSignIn answers with the page on which a token is entered. A token that was refused is forgotten.
func (h *Handler) askToSignIn(w http.ResponseWriter, r *http.Request, status int, data signInData) {
	if h.cookie(r, tokenCookie) != "" {
		h.setCookie(w, r, tokenCookie, "")
	}
	p := &view{Title: "Sign in", CSRF: formToken(h.formKey(w, r), ""), Data: data}
	h.render(w, r, status, "sign-in", p)
}

func (h *Handler) showSignIn(w http.ResponseWriter, r *http.Request) {
	h.askToSignIn(w, r, http.StatusOK, signInData{Next: localPath(r.URL.Query().Get("next"))})
}

// signIn examines the token of the form, and keeps it in a cookie. A link is exchanged for the token of its session.
func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) {
	if err := h.checkForm(w, r, ""); err != nil {
		h.fail(w, r, err)
		return
	}
	token, next := strings.TrimSpace(r.PostForm.Get("token")), localPath(r.PostForm.Get("next"))
	if api.IsLink(token) {
		secret, err := h.config.API.RedeemLink(r.Context(), token)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		if secret == "" {
			h.askToSignIn(w, r, http.StatusUnauthorized, signInData{Next: next,
				Problem: "The link has expired or was used.", Cure: "Create a new link: taskledger open"})
			return
		}
		token = secret
	}
	attempt := r.Clone(r.Context())
	attempt.Header.Set("Authorization", "Bearer "+token)
	_, err := h.config.API.Admit(attempt, api.Viewer)
	switch {
	case isUnauthenticated(err):
		h.askToSignIn(w, r, http.StatusUnauthorized, signInData{Next: next,
			Problem: "The token is unknown, expired or revoked.",
			Cure:    "An operator makes one with: taskledger create token NAME --role viewer"})
		return
	case err != nil:
		h.fail(w, r, err)
		return
	}
	h.setCookie(w, r, tokenCookie, token)
	h.setCookie(w, r, formCookie, rand.Text()) // a page that was open before must not act as this caller
	http.Redirect(w, r, h.config.Base+next, http.StatusSeeOther)
}

func (h *Handler) signOut(w http.ResponseWriter, r *http.Request) {
	c, err := h.admit(r)
	if err == nil {
		err = h.checkForm(w, r, c.ID())
	}
	if err != nil && !isUnauthenticated(err) {
		h.fail(w, r, err)
		return
	}
	h.setCookie(w, r, tokenCookie, "")
	h.setCookie(w, r, formCookie, "")
	http.Redirect(w, r, h.config.Base+"sign-in", http.StatusSeeOther)
}

// localPath returns the path and the query of a page of the console, without the first slash; "" for another address.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || strings.ContainsAny(next, "\\\r\n") {
		return ""
	}
	for _, p := range pages {
		if p.name != "" && strings.TrimPrefix(u.Path, "/") == p.name {
			local := url.URL{Path: p.name, RawQuery: u.RawQuery}
			return local.String()
		}
	}
	return ""
}
