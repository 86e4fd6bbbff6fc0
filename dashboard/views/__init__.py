"""Pages: one script each, and parts that some of them share. Not named `pages`: Streamlit takes such a folder for its own."""
