package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"unicode/utf8"
)

// anonymous is the caller without authentication.
const anonymous = "anonymous"

// authenticate returns the caller of a request.
func (h *Handler) authenticate(r *http.Request) (*caller, error) {
	header := r.Header.Values("Authorization")
	switch {
	case len(header) > 1:
		return nil, invalid("Authorization", "must be sent once")
	case len(header) == 1:
		return h.byToken(r.Context(), header[0])
	case h.config.Certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		return h.byCertificate(r)
	case h.isProxy(r):
		return h.byProxy(r)
	case h.config.Anonymous && isLoopback(r):
		return &caller{name: anonymous, role: Admin, id: sharedID + anonymous}, nil
	}
	return nil, problem(codeUnauthenticated, "the request has no token")
}

// IsNamed reports whether the connection of a request names its caller: by a client certificate, by a trusted proxy, or
// as anonymous. It reads nothing; the caller may be unknown.
func (h *Handler) IsNamed(r *http.Request) bool {
	return len(r.Header.Values("Authorization")) == 0 &&
		(h.config.Certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 || h.isProxy(r) ||
			h.config.Anonymous && isLoopback(r))
}

// byToken returns the caller of a bearer token.
func (h *Handler) byToken(ctx context.Context, header string) (*caller, error) {
	scheme, secret, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, problem(codeUnauthenticated, "the header Authorization must be: Bearer TOKEN")
	}
	c, err := h.registry.bySecret(ctx, strings.TrimSpace(secret))
	if err == nil && c == nil {
		err = problem(codeUnauthenticated, "the token is unknown, expired or revoked")
	}
	return c, err
}

// byCertificate returns the caller that the verified client certificate names.
func (h *Handler) byCertificate(r *http.Request) (*caller, error) {
	leaf := r.TLS.VerifiedChains[0][0]
	name := leaf.Subject.CommonName
	if name == "" && len(leaf.DNSNames) > 0 {
		name = leaf.DNSNames[0]
	}
	return h.byName(r.Context(), name, "")
}

// byProxy returns the caller that the proxy names.
func (h *Handler) byProxy(r *http.Request) (*caller, error) {
	names := r.Header.Values(h.config.Proxy.Header)
	if len(names) != 1 {
		return nil, problem(codeUnauthenticated,
			fmt.Sprintf("the proxy must send the header %s once, got %d", h.config.Proxy.Header, len(names)))
	}
	return h.byName(r.Context(), names[0], h.config.Proxy.Role)
}

// byName returns the caller with a name. A caller that never had a token gets role; it is refused if role is "".
func (h *Handler) byName(ctx context.Context, name string, role Role) (*caller, error) {
	if err := CheckName(name); err != nil {
		return nil, problem(codeUnauthenticated, err.Error())
	}
	c, isKnown, err := h.registry.named(ctx, name)
	if err != nil || c != nil {
		return c, err
	}
	if isKnown || role == "" {
		detail := fmt.Sprintf("there is no caller %s", name)
		if isKnown {
			detail = fmt.Sprintf("the token of the caller %s has expired or was revoked", name)
		}
		p := problem(codeUnauthenticated, detail)
		p.Cure = "let an operator make it with: taskledger create token " + name + " --no-secret"
		return nil, p
	}
	return &caller{id: sharedID + string(role), name: name, role: role}, nil
}

// checkAgain refuses a caller that was revoked or has expired while its request waited.
func (h *Handler) checkAgain(r *http.Request, c *caller) error {
	isValid, err := h.registry.isValid(r.Context(), c)
	if err == nil && !isValid {
		err = problem(codeUnauthenticated, "the token has expired or was revoked while the request waited")
	}
	return err
}

// isProxy reports whether the peer is the trusted proxy.
func (h *Handler) isProxy(r *http.Request) bool {
	if len(h.config.Proxy.From) == 0 {
		return false
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	for _, prefix := range h.config.Proxy.From {
		if prefix.Contains(peer.Addr().Unmap()) {
			return true
		}
	}
	return false
}

// isLoopback reports whether this machine itself sent the request, and the request names a loopback address as its
// host. The host excludes a page of another site whose name resolves to a loopback address. Requests that a proxy on
// the machine has passed on do not count.
func isLoopback(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || !isLoopbackHost(local.String()) || !isLoopbackHost(r.RemoteAddr) {
		return false
	}
	return isLoopbackHost(r.Host)
}

func isLoopbackHost(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// checkURL refuses invalid URLs, before any lookup.
func checkURL(r *http.Request) error {
	switch {
	case len(r.RequestURI) > maxURLBytes:
		return problem(codeTooLarge, fmt.Sprintf("the URL has more than %d bytes", maxURLBytes))
	case !utf8.ValidString(r.URL.Path):
		return invalid("path", "must be UTF-8 after decoding")
	case strings.ContainsRune(r.URL.Path, 0):
		return invalid("path", "must not contain NUL")
	}
	return nil
}
