// A program with Pulsar's library for Go, driven by the commands that tests/compat/pulsar/programs/client.py describes.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

type answer map[string]any

// object is what a name stands for; carryOut is never called twice at the same time.
type object interface {
	carryOut(command) (answer, error)
}

type program struct {
	lock    sync.Mutex
	objects map[string]object
	queues  map[string]chan command
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	p := &program{objects: map[string]object{}, queues: map[string]chan command{}}
	for lines.Scan() {
		var one command
		check(json.Unmarshal(lines.Bytes(), &one))
		p.take(one)
	}
}

func (p *program) take(one command) {
	queue := p.queues[one.Of]
	if queue == nil {
		queue = make(chan command, 1000)
		p.queues[one.Of] = queue
		go p.serve(queue)
	}
	queue <- one
}

func (p *program) serve(queue chan command) {
	for one := range queue {
		result, err := p.carryOut(one)
		if err != nil {
			result = answer{"error": "Error", "text": err.Error()}
		} else if result == nil {
			result = answer{}
		}
		result["id"] = one.ID
		say(result)
	}
}

func (p *program) carryOut(one command) (answer, error) {
	var made object
	var result answer
	var err error
	switch one.Do {
	case "connect":
		made, err = connected(one)
	case "producer":
		made, result, err = newProducer(p.client(one), one)
	case "subscribe":
		made, err = subscribed(p.client(one), one)
	case "reader":
		made, err = newReader(p.client(one), one)
	default:
		return p.object(one.Of).carryOut(one)
	}
	if err == nil {
		p.lock.Lock()
		defer p.lock.Unlock()
		p.objects[one.Of] = made
	}
	return result, err
}

func (p *program) object(name string) object {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.objects[name]
}

func (p *program) client(one command) pulsar.Client {
	return p.object(one.Client).(*client).client
}

type client struct{ client pulsar.Client }

func connected(one command) (*client, error) {
	options := pulsar.ClientOptions{URL: one.URL, TLSTrustCertsFilePath: one.CA, TLSValidateHostname: true}
	if one.Token != "" {
		options.Authentication = pulsar.NewAuthenticationToken(one.Token)
	}
	if one.TimeoutS > 0 {
		options.OperationTimeout = time.Duration(one.TimeoutS) * time.Second
	}
	made, err := pulsar.NewClient(options)
	return &client{made}, err
}

func (c *client) carryOut(one command) (answer, error) {
	switch one.Do {
	case "partitions":
		topics, err := c.client.TopicPartitions(one.Topic)
		return answer{"topics": topics}, err
	case "close":
		c.client.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("a client cannot %s", one.Do)
}

func idOf(id pulsar.MessageID) []any {
	return []any{id.LedgerID(), id.EntryID(), id.BatchIdx(), hex.EncodeToString(id.Serialize())}
}

func idFrom(text string) (pulsar.MessageID, error) {
	switch text {
	case "earliest":
		return pulsar.EarliestMessageID(), nil
	case "latest":
		return pulsar.LatestMessageID(), nil
	}
	bytes, err := hex.DecodeString(text)
	if err != nil {
		return nil, err
	}
	return pulsar.DeserializeMessageID(bytes)
}

func milliseconds(number int) time.Duration { return time.Duration(number) * time.Millisecond }

func millisecondsOf(when time.Time) int64 {
	if when.IsZero() {
		return 0
	}
	return when.UnixMilli()
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

var speaking sync.Mutex

func say(value answer) {
	text, err := json.Marshal(value)
	check(err)
	speaking.Lock()
	defer speaking.Unlock()
	fmt.Println(strings.TrimSpace(string(text)))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
