package alarm_test

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"mime/quotedprintable"
	"net"
	"net/http/httptest"
	"net/mail"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/taskledger/taskledger/workers/alarm"
)

// mailServer is an SMTP server that wants TLS and a password.
type mailServer struct {
	t      testing.TB
	port   int
	caFile string

	mu    sync.Mutex
	mails []string
}

func newMailServer(t testing.TB, implicit bool) *mailServer {
	t.Helper()
	certified := httptest.NewTLSServer(nil) // for its certificate, of 127.0.0.1
	defer certified.Close()
	s := &mailServer{t: t}
	s.caFile = file(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})))
	server := smtp.NewServer(s)
	server.TLSConfig = &tls.Config{Certificates: certified.TLS.Certificates}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = listener.Addr().(*net.TCPAddr).Port
	if implicit {
		listener = tls.NewListener(listener, server.TLSConfig)
	}
	go func() { _ = server.Serve(listener) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
	return s
}

func (s *mailServer) NewSession(*smtp.Conn) (smtp.Session, error) {
	return &mailSession{server: s}, nil
}

func (s *mailServer) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.mails...)
}

// receiver is the server as a receiver.
func (s *mailServer) receiver(name string) alarm.Receiver {
	return alarm.Receiver{Name: name, Mail: &alarm.Mail{
		Host: "127.0.0.1", Port: s.port, CAFile: s.caFile, User: "alarms", PasswordFile: file(s.t, "password", secret),
		From: "Ledger <ledger@example.com>", To: []string{"ops@example.com", "Boss <boss@example.com>"},
	}}
}

// mailSession is one connection; only who has logged in may send.
type mailSession struct {
	server *mailServer
	in     bool
}

func (*mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if s.in = user == "alarms" && password == secret; !s.in {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

func (s *mailSession) Mail(string, *smtp.MailOptions) error {
	if !s.in {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.mails = append(s.server.mails, string(text))
	return nil
}

func (*mailSession) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (*mailSession) Reset()                               {}
func (*mailSession) Logout() error                        { return nil }

// body parses a mail, and returns its text.
func body(t testing.TB, text string) (mail.Header, string) {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var r = m.Body
	if m.Header.Get("Content-Transfer-Encoding") == "quoted-printable" {
		r = quotedprintable.NewReader(r)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return m.Header, string(plain)
}

// Ten thousand dead tasks are one mail with counts, whatever their errors contain, and what
// happens after it waits until the next one is allowed.
func TestTenThousandDeadAreOneMail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	server := newMailServer(t, false)
	c := b.config(server.receiver("ops"))
	c.Rules.Every = alarm.Duration(patience) * 60
	w := b.watcher(c)
	b.die("coupon.send", "order-", 9_000, "no such customer\r\n.\r\nRCPT TO:<thief@example.com>\x1b[2J")
	b.die("coupon.send", "gift-<b>", 1_000, "out of coupons")
	b.pass(w)
	b.die("coupon.send", "later-", 1, "out of coupons")
	b.pass(w)
	b.pass(w)
	if got := server.got(); len(got) != 1 {
		t.Fatalf("%d mails, want 1", len(got))
	}
	header, text := body(t, server.got()[0])
	if want := "[taskledger] 10,000 tasks of kind coupon.send are dead"; header.Get("Subject") != want {
		t.Errorf("subject %q, want %q", header.Get("Subject"), want)
	}
	for _, want := range []string{"9,000 tasks, the newest at", `no such customer\r\n.\r\nRCPT TO:<thief@example.com>\x1b[2J`, "1,000 tasks", "out of coupons"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\x00") {
		t.Errorf("control characters in %q", text)
	}
	if alarms := b.alarms(); len(alarms) != 1 || alarms[0].State != "succeeded" {
		t.Errorf("alarms %+v", alarms)
	}
}

func TestMailIsEncrypted(t *testing.T) {
	t.Parallel()
	message := alarm.Message{Alarm: "ops/1", Ledger: "l", Items: []alarm.Item{{Text: "ümläut"}}}
	t.Run("implicit", func(t *testing.T) {
		t.Parallel()
		server := newMailServer(t, true)
		r := server.receiver("ops")
		r.Mail.TLS = "implicit"
		if err := r.Send(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		if _, text := body(t, server.got()[0]); !strings.Contains(text, "ümläut") {
			t.Error(text)
		}
	})
	t.Run("unknown certificate", func(t *testing.T) {
		t.Parallel()
		r := newMailServer(t, false).receiver("ops")
		r.Mail.CAFile = ""
		err := r.Send(t.Context(), message)
		if certificate := new(tls.CertificateVerificationError); !errors.As(err, &certificate) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("wrong password", func(t *testing.T) {
		t.Parallel()
		r := newMailServer(t, false).receiver("ops")
		r.Mail.PasswordFile = file(t, "password", "guess")
		if err := r.Send(t.Context(), message); err == nil || strings.Contains(err.Error(), "guess") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("no TLS there", func(t *testing.T) {
		t.Parallel()
		server := smtp.NewServer(newMailServer(t, false))
		server.AllowInsecureAuth = true // a man in the middle who wants the password
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		r := newMailServer(t, false).receiver("ops")
		r.Mail.Port = listener.Addr().(*net.TCPAddr).Port
		if err := r.Send(t.Context(), message); err == nil {
			t.Error("the password was sent in the clear")
		}
	})
}
