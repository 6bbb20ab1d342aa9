package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/taskledger/taskledger/internal/loop"
	"github.com/taskledger/taskledger/internal/wire"
	"github.com/taskledger/taskledger/ledger"
)

// Config configures a [Client].
type Config struct {
	URL   string // of the server, such as https://tasks.example.com. Required.
	Token string // Default: no token, for client certificates.
	// HTTP sends the requests. Its Timeout must be 0 or longer than Wait. Default: http.DefaultClient.
	HTTP *http.Client
	// Attempts is the maximum number of times that a request is sent. Default: 5.
	Attempts int
	// Wait is how long one request of [Client.Wait] waits. Default: 20 s.
	Wait time.Duration
}

// Validate reports every fault at once.
func (c Config) Validate() error {
	var faults []error
	if u, err := url.Parse(c.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		faults = append(faults, fmt.Errorf("client: URL must be http://… or https://…, got %q", c.URL))
	}
	if c.Attempts < 0 {
		faults = append(faults, fmt.Errorf("client: Attempts must not be negative, got %d", c.Attempts))
	}
	if c.Wait < 0 || c.Wait > time.Minute {
		faults = append(faults, fmt.Errorf("client: Wait must be at most 1m, got %s", c.Wait))
	}
	return errors.Join(faults...)
}

// Client calls the API. It is safe for concurrent use.
type Client struct{ config Config }

// New returns a client. It returns the error of [Config.Validate], and connects to nothing.
func New(c Config) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	if c.Attempts == 0 {
		c.Attempts = 5
	}
	if c.Wait == 0 {
		c.Wait = 20 * time.Second
	}
	c.URL = strings.TrimSuffix(c.URL, "/")
	return &Client{c}, nil
}

// Enqueue enqueues a task of a kind. o sets the other properties of the task; nil means none. Its Kind, BizID and Args
// are ignored. If a task with this key exists with the same args, Enqueue returns it.
//
// The error is a [*Problem] or the last attempt's error. The problem's Code is "other_args" if the task exists with
// other args, and "overloaded" if the limit of the kind was still reached after the retries.
func Enqueue[A any](
	ctx context.Context, c *Client, kind ledger.TypedKind[A], id ledger.BizID, args A, o *NewTask,
) (Enqueued, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue %s: %w", kind.Key(id), err)
	}
	var t NewTask
	if o != nil {
		t = *o
	}
	t.Kind, t.BizID, t.Args = kind.Name(), id, text
	return c.Enqueue(ctx, t)
}

// Enqueue enqueues a task, see the function [Enqueue].
func (c *Client) Enqueue(ctx context.Context, t NewTask) (e Enqueued, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/tasks", t, &e)
	return e, err
}

// EnqueueMany enqueues 1 to 1,000 tasks, all or none, and returns them in their order.
func (c *Client) EnqueueMany(ctx context.Context, tasks []NewTask) ([]Enqueued, error) {
	var r wire.Tasks[Enqueued]
	err := c.do(ctx, http.MethodPost, "/v1/tasks:batch", wire.Tasks[NewTask]{Tasks: tasks}, &r)
	return r.Tasks, err
}

// Task returns a task. The Code of the [*Problem] is "unknown_task" if the task does not exist.
func (c *Client) Task(ctx context.Context, k ledger.Key) (t ledger.Task, err error) {
	err = c.do(ctx, http.MethodGet, Path(k), nil, &t)
	return t, err
}

// Tasks returns a page of tasks, the last enqueued first. A page may contain fewer items than the limit, even none,
// although there are more: it is the last page if its Next is empty. A nil filter selects all tasks.
//
// The list follows the ledger by some milliseconds, so a task that was just enqueued may be missing.
func (c *Client) Tasks(ctx context.Context, f *TaskFilter) (page List[ledger.ListedTask], err error) {
	query := url.Values{}
	if f != nil {
		for name, value := range map[string]string{
			"kind": string(f.Kind), "state": string(f.State), "tag": f.Tag, "partition": f.Partition,
			"order_key": f.OrderKey, "after": f.StartAfter,
		} {
			if value != "" {
				query.Set(name, value)
			}
		}
		if f.Limit != 0 {
			query.Set("limit", strconv.Itoa(f.Limit))
		}
	}
	err = c.do(ctx, http.MethodGet, "/v1/tasks?"+query.Encode(), nil, &page)
	return page, err
}

// Wait waits until a task is finished, in any state, and returns it. It waits as long as ctx lasts.
func (c *Client) Wait(ctx context.Context, k ledger.Key) (ledger.Task, error) {
	path := Path(k) + "?wait=" + strconv.Itoa(int(c.config.Wait.Seconds()))
	for {
		var t ledger.Task
		if err := c.do(ctx, http.MethodGet, path, nil, &t); err != nil || t.State.Finished() {
			return t, err
		}
		if err := loop.Sleep(ctx, 10*time.Millisecond); err != nil { // a server that shuts down answers at once
			return t, err
		}
	}
}

// Cancel cancels an unfinished task. The Code of the [*Problem] is "state" if the task is finished.
//
// Changes such as Cancel are retried if the server was not reached or has refused them for now. They are not retried
// after a lost answer: the second request would undo later changes by others. After such an error the change may have
// been made: read the task.
func (c *Client) Cancel(ctx context.Context, k ledger.Key, reason string) (ledger.Task, error) {
	return c.change(ctx, k, ":cancel", wire.Change{Reason: reason})
}

// Release makes a finished or waiting task available.
func (c *Client) Release(ctx context.Context, k ledger.Key, reason string) (ledger.Task, error) {
	return c.change(ctx, k, ":release", wire.Change{Reason: reason})
}

// Bury makes an unfinished task dead, until it is released.
func (c *Client) Bury(ctx context.Context, k ledger.Key, reason string) (ledger.Task, error) {
	return c.change(ctx, k, ":bury", wire.Change{Reason: reason})
}

// Reschedule changes the time at which a waiting or available task is released, or its priority.
func (c *Client) Reschedule(ctx context.Context, k ledger.Key, d ledger.Due, reason string) (ledger.Task, error) {
	return c.change(ctx, k, ":reschedule",
		wire.Change{Reason: reason, At: d.At, In: d.In.Seconds(), Priority: d.Priority})
}

func (c *Client) change(ctx context.Context, k ledger.Key, name string, change wire.Change) (t ledger.Task, err error) {
	err = c.do(ctx, http.MethodPost, Path(k)+name, change, &t)
	return t, err
}

// do sends a request until it is answered, at most Attempts times, and decodes the answer.
func (c *Client) do(ctx context.Context, method, path string, body, into any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	for attempt := 1; ; attempt++ {
		delay, err := c.once(ctx, method, path, text, into)
		if err == nil || delay < 0 || attempt >= c.config.Attempts || ctx.Err() != nil {
			return err
		}
		if isChange(body) && !isUnmade(err) {
			return err
		}
		backoff := time.Duration(rand.Float64() * float64(100*time.Millisecond<<min(attempt, 6)))
		if loop.Sleep(ctx, max(delay, backoff)) != nil {
			return err
		}
	}
}

// isChange reports whether a second request with this body could change what the first one or others have done since.
func isChange(body any) bool {
	isAgain := func(t NewTask) bool {
		return t.IfExists == ledger.IfExistsRerun || t.IfExists == ledger.IfExistsReplace
	}
	switch b := body.(type) {
	case wire.Change:
		return true
	case NewTask:
		return isAgain(b)
	case wire.Tasks[NewTask]:
		return slices.ContainsFunc(b.Tasks, isAgain)
	}
	return false
}

// isUnmade reports whether an error means that the server has not begun the request.
func isUnmade(err error) bool {
	var p *Problem
	var network *net.OpError
	return errors.As(err, &p) && p.Status == http.StatusTooManyRequests ||
		errors.As(err, &network) && network.Op == "dial"
}

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 64 << 20

// once sends a request. The delay of an error is the time after which it may be sent again, negative for never.
func (c *Client) once(ctx context.Context, method, path string, body []byte, into any) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.config.URL+path, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.config.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.config.Token)
	}
	response, err := c.config.HTTP.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return 0, err
	case response.StatusCode < http.StatusMultipleChoices:
		if err := json.Unmarshal(answer, into); err != nil {
			return -1, fmt.Errorf("%s %s: %w", method, path, err)
		}
		return 0, nil
	}
	return failure(response, answer)
}

// failure returns the problem of an answer, and when the request may be sent again.
func failure(response *http.Response, answer []byte) (time.Duration, error) {
	p := &Problem{}
	if json.Unmarshal(answer, p) != nil || p.Code == "" { // of a proxy
		p = &Problem{Code: "no_problem", Status: response.StatusCode, Detail: "the answer is " + response.Status}
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return time.Duration(max(seconds, 0)) * time.Second, p
	}
	return -1, p
}
