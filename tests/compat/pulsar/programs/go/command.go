package main

import "encoding/json"

// command has the fields of all commands; what is left out has the library's default.
type command struct {
	ID     int    `json:"id"`
	Do     string `json:"do"`
	Of     string `json:"of"`
	Client string `json:"client"`

	URL      string `json:"url"`
	Token    string `json:"token"`
	CA       string `json:"ca"`
	TimeoutS int    `json:"timeoutS"`

	Topic      string   `json:"topic"`
	Topics     []string `json:"topics"`
	Pattern    string   `json:"pattern"`
	Name       string   `json:"name"`
	DiscoveryS int      `json:"discoveryS"`

	Batch         int    `json:"batch"`
	DelayMs       int    `json:"delayMs"`
	Codec         string `json:"codec"`
	Chunking      bool   `json:"chunking"`
	Access        string `json:"access"`
	SendTimeoutMs int    `json:"sendTimeoutMs"`

	Subscription string      `json:"subscription"`
	Type         string      `json:"type"`
	Earliest     bool        `json:"earliest"`
	Durable      *bool       `json:"durable"`
	Queue        *int        `json:"queue"`
	Ranges       [][2]int    `json:"ranges"`
	Inclusive    bool        `json:"inclusive"`
	IndexAck     bool        `json:"indexAck"`
	Receipts     bool        `json:"receipts"`
	GroupMs      *int        `json:"groupMs"`
	NackMs       int         `json:"nackMs"`
	BackoffMs    []int       `json:"backoffMs"`
	DeadLetter   *deadLetter `json:"deadLetter"`
	Retry        bool        `json:"retry"`
	MaxChunked   int         `json:"maxChunked"`
	AckChunked   bool        `json:"ackChunked"`
	Start        string      `json:"start"`

	Count    int             `json:"count"`
	WithinMs int             `json:"withinMs"`
	AckEvery int             `json:"ackEvery"`
	Message  int             `json:"message"`
	Messages json.RawMessage `json:"messages"` // numbers, or what is to be sent
	To       json.RawMessage `json:"to"`       // a text or milliseconds
	Force    bool            `json:"force"`
}

type deadLetter struct {
	Max          uint32 `json:"max"`
	Topic        string `json:"topic"`
	RetryTopic   string `json:"retryTopic"`
	Subscription string `json:"subscription"`
}

type message struct {
	Value       string            `json:"value"`
	Size        int               `json:"size"`
	Key         string            `json:"key"`
	OrderingKey string            `json:"orderingKey"`
	Properties  map[string]string `json:"properties"`
	EventMs     int64             `json:"eventMs"`
	Sequence    *int64            `json:"sequence"`
	DelayMs     int               `json:"delayMs"`
}

func (c command) numbers() []int {
	var found []int
	check(json.Unmarshal(c.Messages, &found))
	return found
}

func (c command) sent() []message {
	var found []message
	check(json.Unmarshal(c.Messages, &found))
	return found
}
