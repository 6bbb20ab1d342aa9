package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/taskledger/taskledger/internal/loop"
)

const (
	// enterScreen switches a terminal to its second screen, without a cursor; leaveScreen returns to the first one.
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	// clearRest clears a terminal from the cursor on.
	clearRest = "\x1b[J"
	// ctrlC is the byte of Ctrl-C on a terminal that sends no signals.
	ctrlC = 3
	// maxWidth and usualHeight are the size of a screen whose terminal reports none.
	maxWidth, usualHeight = 120, 40
)

func newTopCommand(a *app) *cobra.Command {
	every := 2 * time.Second
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch kinds, workers and lag on the terminal",
		Long: `Watch kinds by their trouble, workers with their slots, and how far relay, projector and subscribers are
behind. The rates are of the last one to two minutes. The key q quits.

Without a terminal, or with -o json, it writes one line at each interval until it is interrupted.`,
		Example: "  taskledger top\n  taskledger top --every 10s >> load.log",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < minWatch {
				return usagef("--every must be at least %s, got %s", minWatch, every)
			}
			return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				s := &sampler{app: a, db: pool}
				defer s.close()
				screen, isFile := a.stdout.(*os.File)
				keys, isKeys := a.stdin.(*os.File)
				if a.config.output == formatTable && isFile && isKeys && term.IsTerminal(int(screen.Fd())) &&
					term.IsTerminal(int(keys.Fd())) {
					return watchTop(ctx, a, s, screen, keys, every)
				}
				return listTop(ctx, a, s, every)
			})
		},
	}
	addDuration(cmd.Flags(), &every, "every", "`interval` between two readings")
	return cmd
}

// listTop writes a line at each interval.
func listTop(ctx context.Context, a *app, s *sampler, every time.Duration) error {
	for {
		n, err := s.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil // interrupted
		case err != nil:
			return err
		case a.config.output != formatTable:
			err = a.printJSON(n, "")
		default:
			_, err = fmt.Fprintln(a.stdout, n.line())
		}
		if err != nil {
			return err
		}
		if loop.Sleep(ctx, every) != nil {
			return nil
		}
	}
}

// sampled is a reading, or its error.
type sampled struct {
	sample
	err error
}

// watchTop draws a screen at each interval, until the key q or an interrupt.
func watchTop(ctx context.Context, a *app, s *sampler, screen, keys *os.File, every time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	samples := make(chan sampled)
	go func() {
		defer close(samples)
		for {
			n, err := s.read(ctx)
			select {
			case samples <- sampled{n, err}:
			case <-ctx.Done():
				return
			}
			if loop.Sleep(ctx, every) != nil {
				return
			}
		}
	}()
	defer func() { // the connections are closed after it
		cancel()
		for range samples {
		}
	}()
	first := <-samples
	if first.err != nil {
		return first.err
	}
	before, err := term.MakeRaw(int(keys.Fd()))
	if err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	defer func() { _ = term.Restore(int(keys.Fd()), before) }() // a terminal that is gone needs no restoring
	fmt.Fprint(screen, enterScreen)
	defer fmt.Fprint(screen, leaveScreen)
	pressed := readKeys(keys)
	for now, trouble := first.sample, ""; ; {
		if err := drawTop(screen, now, trouble, a.isColour); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case key, isOpen := <-pressed:
			if !isOpen || key == 'q' || key == 'Q' || key == ctrlC {
				return nil
			}
		case next, isOpen := <-samples:
			switch {
			case !isOpen:
				return nil
			case next.err != nil:
				f := describe(next.err)
				at := now.At.Local().Format(time.TimeOnly)
				trouble = a.secrets.hide(f.message + "; the numbers are from " + at)
			default:
				now, trouble = next.sample, ""
			}
		}
	}
}

// readKeys returns the bytes that a terminal sends. Its goroutine ends with the terminal or with the process.
func readKeys(from io.Reader) <-chan byte {
	pressed := make(chan byte)
	go func() {
		defer close(pressed)
		var b [1]byte
		for {
			if n, err := from.Read(b[:]); n == 1 {
				pressed <- b[0]
			} else if err != nil {
				return
			}
		}
	}()
	return pressed
}

// drawTop replaces the screen. A terminal that reads keys needs \r at the end of a line.
func drawTop(screen *os.File, n sample, trouble string, isColour bool) error {
	width, height, err := term.GetSize(int(screen.Fd()))
	if err != nil || width < 1 || height < 1 {
		width, height = maxWidth, usualHeight
	}
	lines := n.screen(trouble, width, height)
	text := unpainted([]byte(strings.Join(lines, "\x1b[K\r\n")), isColour)
	_, err = fmt.Fprintf(screen, "\x1b[H%s\x1b[K%s", text, clearRest)
	return err
}
