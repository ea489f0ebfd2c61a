package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// callerMode is the first argument of this program as the client.
const callerMode = "caller"

// postBytes is what Codex posts for a one-word prompt.
const postBytes = 74 << 10

// caller is the client, a program of its own because the broker's is in a box.
// It does what each line on stdin says and answers with one line of JSON.
func caller(url string) error {
	c := &client{url: url, http: &http.Client{Transport: &http.Transport{
		Proxy: nil, DisableCompression: true, MaxIdleConnsPerHost: 64,
	}}}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		n, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		took, err := map[string]func(int) ([]time.Duration, error){
			"post": c.posts, "events": c.events, "stream": c.stream, "rate": c.rate,
		}[words[0]](n)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(took); err != nil {
			return err
		}
	}
	return nil
}

type client struct {
	url  string
	http *http.Client
}

func (c *client) post(query string, body []byte) (*http.Response, error) {
	res, err := c.http.Post(c.url+query, "application/json", bytes.NewReader(body))
	if err == nil && res.StatusCode != 200 {
		res.Body.Close()
		return nil, fmt.Errorf("%s answers %s", c.url, res.Status)
	}
	return res, err
}

// body is another one each time, so that nobody can have it already.
func body() []byte {
	b := bytes.Repeat([]byte("0123456789abcdef"), postBytes/16)
	rand.Read(b[:16])
	return b
}

// posts makes n requests, one after the other.
func (c *client) posts(n int) ([]time.Duration, error) {
	var took []time.Duration
	for range n {
		b := body()
		begin := time.Now()
		res, err := c.post("", b)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}

// events reads n events that tell when they were sent.
func (c *client) events(n int) ([]time.Duration, error) {
	res, err := c.post("?paced="+strconv.Itoa(n), []byte("{}"))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var took []time.Duration
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			now := time.Now().UnixNano()
			text, _, _ = strings.Cut(text, " ")
			sent, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, err
			}
			took = append(took, time.Duration(now-sent))
		}
	}
	if len(took) != n {
		return nil, fmt.Errorf("%d events of %d came", len(took), n)
	}
	return took, nil
}

// stream reads n events that are sent one behind the other.
func (c *client) stream(n int) ([]time.Duration, error) {
	begin := time.Now()
	res, err := c.post("?all="+strconv.Itoa(n), []byte("{}"))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if got := bytes.Count(b, []byte("\n\n")); err != nil || got != n {
		return nil, fmt.Errorf("%d events of %d came: %v", got, n, err)
	}
	return []time.Duration{time.Since(begin)}, nil
}

// rate makes requests for n milliseconds, 32 at a time, and gives the time for
// each as if they had been made one by one.
func (c *client) rate(n int) ([]time.Duration, error) {
	begin := time.Now()
	end := begin.Add(time.Duration(n) * time.Millisecond)
	var done atomic.Int64
	var failed atomic.Value
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for time.Now().Before(end) && failed.Load() == nil {
				if _, err := c.posts(1); err != nil {
					failed.Store(err)
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	if err, _ := failed.Load().(error); err != nil {
		return nil, err
	}
	return []time.Duration{time.Since(begin) / time.Duration(done.Load())}, nil
}
