package alarm_test

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/taskledger/taskledger/internal/alarm"
)

// mailServer is an SMTP server (RFC 5321, 3207, 4954) that requires a password. It fails the test if
// the client breaks the protocol, which includes text that escapes from its mail.
type mailServer struct {
	t      testing.TB
	mode   string // as alarm.Mail.TLS
	tls    *tls.Config
	port   int
	caFile string

	mu    sync.Mutex
	mails []receivedMail // guarded by mu
	auths int            // number of AUTH commands; guarded by mu
}

// receivedMail is a mail as the client sent it.
type receivedMail struct {
	from string
	to   []string
	text string
}

// newMailServer starts a server with a mode of alarm.Mail.TLS: starttls, implicit or none.
func newMailServer(t testing.TB, mode string) *mailServer {
	t.Helper()
	https := httptest.NewTLSServer(nil) // for its certificate, of 127.0.0.1
	defer https.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw})
	s := &mailServer{
		t: t, mode: mode, tls: &tls.Config{Certificates: https.TLS.Certificates},
		caFile: file(t, "ca.pem", string(ca)),
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = listener.Addr().(*net.TCPAddr).Port
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		connections.Wait()
	})
	return s
}

// receiver returns a receiver of alarms whose mails the server accepts.
func (s *mailServer) receiver(name string) alarm.Receiver {
	return alarm.Receiver{Name: name, Mail: &alarm.Mail{
		Host: "127.0.0.1", Port: s.port, CAFile: s.caFile, User: "alarms", PasswordFile: file(s.t, "password", secret),
		From: "Ledger <ledger@example.com>", To: []string{"ops@example.com", "Boss <boss@example.com>"},
	}}
}

func (s *mailServer) received() []receivedMail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mails)
}

// passwords returns how often a client has sent a password.
func (s *mailServer) passwords() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.auths
}

func (s *mailServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Error(err)
	}
	session := &mailSession{server: s, conn: conn, in: bufio.NewReader(conn)}
	if s.mode == "implicit" {
		session.encrypt()
	}
	session.reply("220 localhost ESMTP")
	for {
		line, err := session.readLine()
		switch {
		case errors.Is(err, errProtocol):
			s.t.Error(err)
			return
		case err != nil:
			return // the client has closed the connection, or rejected the certificate
		}
		if command, argument, _ := strings.Cut(line, " "); !session.handle(strings.ToUpper(command), argument) {
			return
		}
	}
}

// mailSession is one connection of a client.
type mailSession struct {
	server     *mailServer
	conn       net.Conn
	in         *bufio.Reader
	encrypted  bool
	loggedIn   bool
	authFailed bool
	mail       receivedMail
}

func (s *mailSession) encrypt() {
	s.conn = tls.Server(s.conn, s.server.tls)
	s.in, s.encrypted = bufio.NewReader(s.conn), true
}

// handle answers one command. It returns whether the session continues.
func (s *mailSession) handle(command, argument string) bool {
	switch {
	case command == "EHLO":
		s.greet()
	case command == "STARTTLS" && s.server.mode == "starttls" && !s.encrypted:
		s.reply("220 2.0.0 go ahead")
		s.encrypt()
	case command == "AUTH" && s.offersAuth():
		s.logIn(argument)
	case command == "*" && s.authFailed: // go-mail cancels an AUTH that has failed already
		s.authFailed = false
		s.reply("501 5.7.0 no AUTH to cancel")
	case command == "MAIL" && s.loggedIn && match(mailFrom, argument) != "":
		s.mail = receivedMail{from: match(mailFrom, argument)}
		s.reply("250 2.1.0 sender accepted")
	case command == "RCPT" && s.mail.from != "" && match(rcptTo, argument) != "":
		s.mail.to = append(s.mail.to, match(rcptTo, argument))
		s.reply("250 2.1.5 recipient accepted")
	case command == "DATA" && len(s.mail.to) > 0:
		return s.readMail()
	case command == "RSET", command == "NOOP":
		s.reply("250 2.0.0 done")
	case command == "QUIT":
		s.reply("221 2.0.0 closing")
		return false
	default:
		s.server.t.Errorf("unexpected command %s %q; encrypted: %t, logged in: %t, mail: %+v",
			command, argument, s.encrypted, s.loggedIn, s.mail)
		s.reply("503 5.5.1 bad sequence of commands")
		return false
	}
	return true
}

func (s *mailSession) offersAuth() bool { return s.encrypted || s.server.mode == "none" }

func (s *mailSession) greet() {
	s.reply("250-localhost")
	if s.server.mode == "starttls" && !s.encrypted {
		s.reply("250-STARTTLS")
	}
	if s.offersAuth() {
		s.reply("250-AUTH PLAIN")
	}
	s.reply("250 8BITMIME")
}

func (s *mailSession) logIn(argument string) {
	s.server.mu.Lock()
	s.server.auths++
	s.server.mu.Unlock()
	encoded, isPlain := strings.CutPrefix(argument, "PLAIN ")
	answer, err := base64.StdEncoding.DecodeString(encoded)
	if !isPlain || err != nil {
		s.server.t.Errorf("AUTH %q: want PLAIN and base64", argument)
	}
	if s.loggedIn = string(answer) == "\x00alarms\x00"+secret; !s.loggedIn {
		s.authFailed = true
		s.reply("535 5.7.8 wrong user or password")
		return
	}
	s.reply("235 2.7.0 logged in")
}

// readMail reads a mail up to the line with a single dot.
func (s *mailSession) readMail() bool {
	s.reply("354 send the mail")
	var text strings.Builder
	for {
		line, err := s.readLine()
		if err != nil {
			s.server.t.Errorf("mail: %v", err)
			return false
		}
		if line == "." {
			break
		}
		text.WriteString(strings.TrimPrefix(line, ".") + "\r\n")
	}
	s.mail.text = text.String()
	s.server.mu.Lock()
	s.server.mails = append(s.server.mails, s.mail)
	s.server.mu.Unlock()
	s.mail = receivedMail{}
	s.reply("250 2.0.0 accepted")
	return true
}

func (s *mailSession) reply(line string) { _, _ = io.WriteString(s.conn, line+"\r\n") }

var errProtocol = errors.New("not a line of SMTP")

// readLine reads a line that ends with CRLF and returns it without its end.
func (s *mailSession) readLine() (string, error) {
	const longest = 1000
	line, err := s.in.ReadString('\n')
	if err != nil {
		return "", err
	}
	content, ok := strings.CutSuffix(line, "\r\n")
	if !ok || strings.Contains(content, "\r") || len(line) > longest {
		return "", fmt.Errorf("%w: %q", errProtocol, line)
	}
	return content, nil
}

var (
	mailFrom = regexp.MustCompile(`^FROM:<([^<>\s]+)>( [A-Z0-9=]+)*$`)
	rcptTo   = regexp.MustCompile(`^TO:<([^<>\s]+)>$`)
)

// match returns the address in the argument of a command, or "".
func match(pattern *regexp.Regexp, argument string) string {
	if groups := pattern.FindStringSubmatch(argument); groups != nil {
		return groups[1]
	}
	return ""
}
