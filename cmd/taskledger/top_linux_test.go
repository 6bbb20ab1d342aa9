package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/term"

	"github.com/taskledger/taskledger/ledger/ledgertest"
)

// openTerminal returns both ends of a new terminal: what a person sees and types, and the program's end.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("SKIPPED without a terminal: %v", err)
	}
	t.Cleanup(func() { _ = person.Close() }) // it may be closed already
	var n, unlocked int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlocked, syscall.TIOCGPTN: &n} {
		_, _, code := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request, uintptr(unsafe.Pointer(value)))
		if code != 0 {
			t.Fatal(code)
		}
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// On a terminal top shows the numbers again and again, ends with q or Ctrl-C, and leaves the terminal as it was.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	environment := map[string]string{envDatabaseURL: ledgertest.URL(t, "reader", "producer"), "TERM": "xterm"}
	if _, stderr, exit := run(t, environment, "enqueue", "coupon.send", "order-17"); exit != exitOK {
		t.Fatal(stderr)
	}
	for _, key := range []string{"q", "\x03"} {
		person, program := openTerminal(t)
		before, err := term.GetState(int(program.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		a := newApp()
		a.getenv = func(name string) string { return environment[name] }
		exit := make(chan int)
		go func() {
			exit <- a.Run(t.Context(), []string{"top", "--every", "100ms", "--nats-url", "nats://127.0.0.1:1"},
				program, program, program)
		}()
		var seen bytes.Buffer
		screens := func() int { return strings.Count(seen.String(), "\x1b[H") }
		b := make([]byte, 1<<16)
		if err := person.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for screens() < 3 {
			n, err := person.Read(b)
			if err != nil {
				t.Fatalf("%v, after %q", err, seen.String())
			}
			seen.Write(b[:n])
		}
		if _, err := person.WriteString(key); err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(seen.String(), leaveScreen) {
			n, err := person.Read(b)
			if err != nil {
				t.Fatalf("%v, after %q", err, seen.String())
			}
			seen.Write(b[:n])
		}
		if code := <-exit; code != exitOK {
			t.Errorf("exit %d: %q", code, seen.String())
		}
		after, err := term.GetState(int(program.Fd()))
		if err != nil || *after != *before {
			t.Errorf("the terminal is not as before: %v", err)
		}
		for _, want := range []string{enterScreen, "no relay is running", "to project", "No worker is alive."} {
			if !strings.Contains(seen.String(), want) {
				t.Errorf("no %q in %q", want, seen.String())
			}
		}
	}
}
